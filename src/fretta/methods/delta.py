"""DELTA: degradation-free fully test-time adaptation.

Zhao, Chen, Xia, ICLR 2023, https://arxiv.org/abs/2301.13018
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..method import GradientMethod
from ..parts.classifier import Classifier
from ..parts.losses import entropy
from ..parts.optim import OptimizerName
from ..parts.replaced import renormalized
from ..parts.statistics import Pair

BASES = ("entropy", "weighted-entropy", "pseudo-label")


@dataclass
class DELTA(GradientMethod):
    """Test-time batch renormalization and class-balanced weights, over a loss of choice.

    base     "entropy" (Tent), "weighted-entropy" (of predictions with H below ½ ln C, more of the
             more certain), "pseudo-label" (cross-entropy to own labels above 0.4)
    alpha    α: momentum of the statistics; 0 uses those of the batch alone
    lam      λ: momentum of the class frequencies; 1 leaves all classes equal
    lr, optimizer, momentum: see GradientMethod.
    """

    key = "delta"
    summary = "moving statistics with gradient, rare classes count more"
    own_statistics = True
    loss = "mean over kept of w_i · loss_i, w_i ∝ 1 / q̂ of the predicted class, of mean 1"
    published = {
        "alpha": "0.95 (ImageNet-C, batches of 64)",
        "lam": "0.95",
        "lr": "2.5e-4, SGD with momentum 0.9",
        "base": "all three, as Tent+DELTA, Ent-W+DELTA, PL+DELTA",
    }

    lr: float = 2.5e-4
    optimizer: OptimizerName = "sgd"
    base: str = "weighted-entropy"
    alpha: float = 0.95
    lam: float = 0.95

    def check(self) -> None:
        super().check()
        self.require(self.base in BASES, "base", wanted=" or ".join(map(repr, BASES)))
        self.require(0 <= self.alpha <= 1, "alpha", wanted="a momentum in [0, 1]")
        self.require(0 <= self.lam <= 1, "lam", wanted="a momentum in [0, 1]")

    def start(self, model: Classifier) -> None:
        super().start(model)
        self.moving: dict[str, list[Tensor]] = {}  # (μ̂, ŝ) of each layer, from the first batch on
        self.frequency: Tensor | None = None  # q̂: of the classes among the predictions

    def forward(self, model: Classifier, x: Tensor) -> Tensor:
        with renormalized(model.net, self._statistics):
            return model(x)

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        with renormalized(model.net, self._moved):
            logits = model(x)
        weight = self._balance(logits.detach())
        loss, kept = self._base_loss(logits)
        self.update(weight * loss, kept)
        return logits

    def _statistics(self, name: str, x: Tensor, batch: Pair) -> Pair:
        mean, scale = self.moving.get(name, batch) if self.alpha else batch
        return mean.to(batch[0]), scale.to(batch[1])

    def _moved(self, name: str, x: Tensor, batch: Pair) -> Pair:
        """The statistics so far; those of this batch enter them after use."""
        used = self._statistics(name, x, batch)
        self.moving[name] = [
            old.lerp(new, 1 - self.alpha) for old, new in zip(used, batch, strict=True)
        ]
        return used

    def _balance(self, logits: Tensor) -> Tensor:
        """DOT: 1 / q̂ of the own label, of mean 1 over the batch; then q̂ moves."""
        probabilities = logits.softmax(1)
        uniform = torch.full_like(probabilities[0], 1 / logits.shape[1])
        q = uniform if self.frequency is None else self.frequency
        weight = 1 / q[logits.argmax(1)]
        self.frequency = self.lam * q + (1 - self.lam) * probabilities.mean(0)
        return weight / weight.mean()

    def _base_loss(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """(N,) and which samples are kept."""
        if self.base == "pseudo-label":
            confidence, label = logits.detach().softmax(1).max(1)
            return F.cross_entropy(logits, label, reduction="none"), confidence > 0.4
        H = entropy(logits)
        if self.base == "entropy":
            return H, None
        weight = (0.5 * math.log(logits.shape[1]) - H.detach()).exp()
        return weight * H, weight > 1
