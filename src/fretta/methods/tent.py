"""Tent: fully test-time adaptation by entropy minimization.

Wang, Shelhamer, Liu, Olshausen, Darrell, ICLR 2021, https://arxiv.org/abs/2006.10726
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..method import GradientMethod
from ..parts.classifier import Classifier
from ..parts.losses import entropy


@dataclass
class Tent(GradientMethod):
    """Make each prediction more confident by updating only scale and shift.

    lr, optimizer, momentum: see GradientMethod.
    """

    key = "tent"
    summary = "entropy minimization of scale and shift"
    loss = "mean_i H(p_i)"
    published = {"lr": "Adam 1e-3 (CIFAR); SGD 2.5e-4 with momentum 0.9 (ImageNet)"}

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        logits = model(x)
        self.update(entropy(logits))  # H(y) = -sum_c p(y_c) log p(y_c)
        return logits
