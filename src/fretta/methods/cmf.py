"""CMF: continual momentum filtering on parameter space for online test-time adaptation.

Lee, Chang, ICLR 2024, https://openreview.net/forum?id=BllUWdpIOA
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..parts.classifier import Classifier
from ..parts.tensors import copy_tensors, pull
from .roid import ROID

PARAMETERS = 38400  # the number of adapted values that q is meant for


@dataclass
class CMF(ROID):
    """ROID, pulled to a filtered average of source and adapted weights instead of the source.

    variant   "paper"; "released" rounds the weights to half precision at each merge
    alpha     α: the filtered weights h go back to the source, h ← α h + (1 - α) θ0
    q         Q: variance of the process, for 38400 adapted values, and in proportion for others
    merge     γ: θ ← γ θ + (1 - γ) h after each update
    rate, temperature, consistency, reference_batch: see ROID. augment, mean, std, seed: see
    Augmented. lr, optimizer, momentum: see GradientMethod.
    """

    key = "cmf"
    summary = "roid, pulled to Kalman-filtered weights"
    loss = (
        "ROID's; then h ← α h + (1-α) θ0, h ← β h + (1-β) θ, θ ← γ θ + (1-γ) h, β by a Kalman gain"
    )
    published = {
        **ROID.published,
        "alpha": "0.99",
        "merge": "0.99",
        "q": "0.005; 0.00025 (ResNet-50 continual), 0.001 (ViT, Swin, sorted)",
        "lr": "SGD with Nesterov 0.9, batches of 64: 2e-4 (ResNet-50), 2.5e-4 (ViT, Swin)",
    }
    differs = {
        "released": "as in ROID, and the adapted and filtered weights are rounded to float16 at"
        " each merge (the code also computes the network in it, which is not done here)"
    }

    alpha: float = 0.99
    q: float = 0.005

    def check(self) -> None:
        super().check()
        self.require(0 <= self.alpha <= 1, "alpha", wanted="a share in [0, 1]")
        self.require(self.q >= 0, "q", wanted="a variance >= 0")

    def start(self, model: Classifier) -> None:
        super().start(model)
        self.hidden = copy_tensors(model.origin)  # h
        self.variance = 0.0  # v

    def pull_back(self, model: Classifier) -> None:
        beta = self._gain(sum(p.numel() for p in model.parameters()))
        pull(self.hidden, model.origin, 1 - self.alpha)
        pull(self.hidden, model.adapted, 1 - beta)
        pull(model.adapted, self.hidden, 1 - self.merge)
        if self.variant == "released":
            _round_to_half(self.hidden)
            _round_to_half(model.adapted)

    def _gain(self, values: int) -> float:
        """β: predict the variance of h, weigh it against that of the new weights, correct it."""
        q = self.q * values / PARAMETERS
        self.variance = self.alpha**2 * self.variance + q
        r = 1 - q
        beta = r / (self.variance + r)
        beta = max(beta, 0.89)
        beta = 1.0 if beta >= 0.9999 else beta
        self.variance *= beta
        return beta


@torch.no_grad()
def _round_to_half(tensors: Mapping[str, Any]) -> None:
    for tensor in tensors.values():
        tensor.copy_(tensor.half())
