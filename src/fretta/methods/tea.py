"""TEA: test-time energy adaptation.

Yuan, Xu, Hou, Sun, Cheng, CVPR 2024, https://arxiv.org/abs/2311.14402
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..method import GradientMethod
from ..parts.classifier import Classifier
from ..parts.losses import energy
from ..parts.optim import gradients_by
from ..parts.random import seeded
from ..parts.replay import ReplayBuffer


@dataclass
class TEA(GradientMethod):
    """Lower the energy of test images against samples drawn from the model itself.

    sgld_steps    steps that draw a sample
    sgld_lr       step size along the gradient
    sgld_std      noise of each step
    buffer_size   samples kept to begin from
    reinit        share of samples that begin from noise
    seed          of noise and choice
    lr, optimizer, momentum: see GradientMethod.
    """

    key = "tea"
    summary = "energy of images against samples of the model"
    passes = "23F+21B"
    timing = "after"
    loss = "mean_i E(x_i) - mean_j E(x̃_j), E = -log Σ_c exp p_c, x̃ drawn from the model by SGLD"
    published = {
        "sgld_steps": "20",
        "sgld_lr": "0.1",
        "sgld_std": "0.01",
        "buffer_size": "10000",
        "reinit": "0.05",
        "lr": "Adam 1e-3",
    }

    sgld_steps: int = 20
    sgld_lr: float = 0.1
    sgld_std: float = 0.01
    buffer_size: int = 10_000
    reinit: float = 0.05
    seed: int = 0

    def check(self) -> None:
        super().check()
        for name in ("sgld_steps", "sgld_lr", "sgld_std"):
            self.require(getattr(self, name) >= 0, name, wanted="a number >= 0")
        self.require(self.buffer_size >= 1, "buffer_size", wanted="at least 1 row")
        self.require(0 <= self.reinit <= 1, "reinit", wanted="a share in [0, 1]")

    def start(self, model: Classifier) -> None:
        super().start(model)
        self.generator = seeded(self.seed, model.parameters()[0].device)
        self.buffer = ReplayBuffer(self.buffer_size, self.reinit)

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        logits = model(x)  # first: a batch the model refuses must not move buffer or generator
        fake = self._sample(model, x)
        # separate forwards: with test BN a joint batch would mix the two statistics
        self.update(energy(logits).mean() - energy(model(fake)).mean())
        return logits

    def _sample(self, model: Classifier, x: Tensor) -> Tensor:
        """Stochastic gradient Langevin dynamics: x ← x - η ∇E(x) + noise, from the buffer."""
        rows, fake = self.buffer.draw(x, self.generator)
        for _ in range(self.sgld_steps):
            fake.requires_grad_()
            (gradient,) = gradients_by([fake], energy(model(fake)).sum())
            noise = torch.empty(fake.shape, dtype=fake.dtype, device=fake.device)
            noise.normal_(generator=self.generator)  # in the same order for any memory layout
            fake = fake.detach() - self.sgld_lr * gradient + self.sgld_std * noise
        self.buffer.store(rows, fake)
        return fake
