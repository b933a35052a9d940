"""TIPI: test time adaptation with transformation invariance.

Nguyen, Nguyen-Tang, Lim, Torr, CVPR 2023,
https://openaccess.thecvf.com/content/CVPR2023/html/Nguyen_TIPI_Test_Time_Adaptation_With_Transformation_Invariance_CVPR_2023_paper.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ConfigError, warn
from ..method import GradientMethod
from ..models.preprocessing import input_std
from ..parts.classifier import Classifier
from ..parts.losses import entropy, kl_divergence
from ..parts.optim import gradients_by
from ..parts.random import seeded


@dataclass
class TIPI(GradientMethod):
    """Make predictions invariant to the small perturbation that changes them most.

    variant           "paper" follows the equations, "released" the published code
    epsilon           ε: size of the perturbation, in pixels scaled to [0, 1]
    tent_coeff        weight of the entropy of the clean prediction
    std               of the preprocessing, to turn pixels into inputs; None: as the model knows it
    reference_batch   `lr` holds for this many samples; B samples use lr · B / 128
    seed              of the random start
    lr, optimizer, momentum: see GradientMethod.
    """

    key = "tipi"
    summary = "invariance to adversarial perturbations"
    passes = "4F+2B"
    timing = "after"
    variants = ("paper", "released")
    loss = (
        "mean_i KL(f(x_i + δ_i) ‖ f(x_i)) + c · H(p_i), δ of size ε along the sign of its gradient"
    )
    published = {"epsilon": "2/255", "tent_coeff": "0 or more, by data set"}
    differs = {"released": "δ begins at 0, where the gradient is 0 up to rounding"}

    variant: str = "paper"
    epsilon: float = 2 / 255
    tent_coeff: float = 0.0
    std: float | Sequence[float] | None = None
    reference_batch: int = 128
    seed: int = 0

    def check(self) -> None:
        super().check()
        self.require(self.epsilon > 0, "epsilon", wanted="a size above 0")
        self.require(self.reference_batch >= 1, "reference_batch", wanted="at least 1 sample")

    def start(self, model: Classifier) -> None:
        super().start(model)
        self.generator = seeded(self.seed, model.parameters()[0].device)
        self.size: Tensor | None = None  # ε in the units of the input, per channel

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        if self.size is None:
            self.size = self.epsilon / self._input_std(model, x)
        with torch.set_grad_enabled(self.tent_coeff != 0):
            logits = model(x)
        delta = self._perturbation(model, x, logits.detach(), self.size)
        # Test BN takes its statistics from each forward anew: the perturbed pass has a set of its
        # own and shares scale and shift, which is what the paper's second batch norm is for.
        # Reverse KL: the perturbed prediction against the clean one, which does not move
        loss = kl_divergence(model(x + delta), logits.detach())
        if self.tent_coeff:
            loss = loss + self.tent_coeff * entropy(logits)
        for group in self.opt.param_groups:
            group["lr"] = self.lr * len(x) / self.reference_batch  # the paper's lr is per sample
        self.update(loss)
        return logits

    def _perturbation(self, model: Classifier, x: Tensor, logits: Tensor, size: Tensor) -> Tensor:
        """One step of size ε along sign ∇_δ KL(f(x + δ) ‖ f(x)), inside the ε box."""
        # contiguous: which pixel gets which random number must not depend on the memory layout
        start = torch.zeros_like(x, memory_format=torch.contiguous_format)
        if self.variant == "paper":
            # At δ = 0 the KL is at its minimum: its gradient is zero and its sign rounding noise.
            start.uniform_(-1, 1, generator=self.generator).mul_(size)
        delta = start.requires_grad_()
        divergence = kl_divergence(model(x + delta), logits).sum()
        (gradient,) = gradients_by([delta], divergence)
        moved = delta.detach() + size * gradient.sign()
        return torch.minimum(torch.maximum(moved, -size), size)

    def _input_std(self, model: Classifier, x: Tensor) -> Tensor:
        std = input_std(model.net) if self.std is None else self.std
        if std is None:
            warn(
                "tipi: std= is not given and the model does not know its preprocessing: the input"
                " is taken for pixels in [0, 1], so on normalized input the perturbation is smaller"
                " than ε; give std=(...)"
            )
            std = 1.0
        value = torch.as_tensor(std, dtype=x.dtype, device=x.device)
        if not bool((value > 0).all()):
            raise ConfigError(f"tipi: std={std!r} cannot work; give values above 0")
        if value.dim() == 0:
            return value
        if value.shape != x.shape[1:2]:
            raise ConfigError(
                f"tipi: std={std!r} has {len(value)} values, the input {x.shape[1]} channels"
            )
        return value.view(-1, *[1] * (x.dim() - 2))
