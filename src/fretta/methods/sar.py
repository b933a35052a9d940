"""SAR: towards stable test-time adaptation in dynamic wild world.

Niu, Wu, Zhang, Wen, Chen, Zhao, Tan, ICLR 2023, https://arxiv.org/abs/2302.12400
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..errors import warn
from ..method import AUTO, GradientMethod
from ..parts.classifier import Classifier
from ..parts.filters import caution_entropy_margin
from ..parts.losses import entropy, masked_mean
from ..parts.norm import norm_layers, without_last_block
from ..parts.optim import OptimizerName, ascended, descend


@dataclass
class SAR(GradientMethod):
    """Minimize the entropy of reliable samples at a flat minimum; start over on collapse.

    lr                of SGD
    variant           "paper" follows the equations, "released" the published code
    e_margin          E0 as a fraction of ln C: reliable is an entropy below it
    rho               ρ: radius of the ascent
    reset_threshold   e_m in nats: a moving average of the entropy below it means collapse
    optimizer, momentum: see GradientMethod. None is what the variant and the classes imply.
    """

    key = "sar"
    summary = "sharpness-aware entropy, with recovery"
    passes = "2F+2B"
    variants = ("paper", "released")
    loss = "mean over kept of H_i at θ + ρ ∇L / ‖∇L‖; kept: H_i < E0 there and at θ"
    published = {
        "lr": "SGD with momentum 0.9: 2.5e-4 (ResNet-50), 1e-3 (ViT)",
        "e_margin": "0.4",
        "rho": "0.05",
        "reset_threshold": "0.2 (ImageNet)",
    }
    differs = {
        "released": "ImageNet's thresholds for any number of classes, layers left out by the name"
        " layer4, a reset keeps the moving average"
    }

    lr: float = 5e-3  # measured: nowhere worse than 1e-3 (docs/evidence.md)
    optimizer: OptimizerName = "sgd"
    variant: str = "paper"
    e_margin: float = AUTO
    rho: float = 0.05
    reset_threshold: float = AUTO

    def implied(self, classes: int) -> Mapping[str, Any]:
        share = math.log(classes) / math.log(1000)
        if self.variant == "released":  # the ImageNet values for any number of classes
            return {"e_margin": 0.4 / share, "reset_threshold": 0.2}
        return {"e_margin": 0.4, "reset_threshold": 0.2 * share}

    def check(self) -> None:
        super().check()
        self.require(self.rho >= 0, "rho", wanted="a radius >= 0")

    def caution(self, classes: int) -> None:
        caution_entropy_margin(self.key, self.e_margin)
        E0 = self.e_margin * math.log(classes)
        if self.reset_threshold >= E0 > 0:
            warn(
                f"sar: reset_threshold={self.reset_threshold:.3g} is not below the entropy margin"
                f" {E0:.3g} nats, so the model is reset after every batch"
            )

    def configure(self, model: Classifier) -> None:
        model.freeze()
        if self.variant == "released":  # by name: only ResNets have a `layer4`
            layers = {n: m for n, m in norm_layers(model.net).items() if "layer4" not in n}
        else:
            layers = without_last_block(model.net)
        model.thaw_norm(layers)

    def start(self, model: Classifier) -> None:
        super().start(model)
        self.average: Tensor | None = None  # moving average of the second loss

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        logits = model(x)
        H = entropy(logits)
        E0 = self.e_margin * math.log(logits.shape[1])
        self.kept = H.detach() < E0
        if not self.kept.any():
            return logits
        with ascended(model.parameters(), masked_mean(H, self.kept), self.rho) as put_back:
            second = entropy(model(x))
            kept = self.kept & (second.detach() < E0)  # filter again within the first selection
            if not kept.any():
                return logits
            loss = masked_mean(second, kept)
            # the gradient of the ascended point, taken from where we stood
            moved = descend(self.opt, loss, before_step=put_back)
        if moved:
            self._recover(model, loss.detach())
        return logits

    def _recover(self, model: Classifier, loss: Tensor) -> None:
        """A small moving average of the loss means collapse: begin again, momentum and all."""
        self.average = loss if self.average is None else 0.9 * self.average + 0.1 * loss
        if self.average < self.reset_threshold:
            average = self.average
            model.restore()
            self.start(model)
            if self.variant == "released":  # which puts the old average back after its reset
                self.average = average
