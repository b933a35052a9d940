"""ROID: universal test-time adaptation through weight ensembling, diversity weighting, and prior
correction.

Marsden, Döbler, Yang, WACV 2024, https://arxiv.org/abs/2306.00650
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..parts.classifier import Classifier
from ..parts.losses import entropy, soft_likelihood_ratio, symmetric_cross_entropy
from ..parts.optim import descend
from ..parts.tensors import pull
from .augmented import Augmented


@dataclass
class ROID(Augmented):
    """Learn from certain and diverse samples, and stay near the source weights.

    variant           "paper" corrects log-probabilities by the prior, "released" the logits
    merge             μ: θ ← μ θ + (1 - μ) θ0 after each update
    rate              β: momentum of the mean prediction that diversity is measured by
    temperature       τ of the weights
    consistency       whether an augmented view must be predicted alike
    reference_batch   the loss is a sum over kept samples, divided by this; None: by their batch
    augment           of the consistency term; see Augmented
    mean, std, seed: see Augmented. lr, optimizer, momentum: see GradientMethod.
    """

    key = "roid"
    summary = "certain and diverse samples, weights pulled to the source, prior correction"
    passes = "2F+1B"
    variants = ("paper", "released")
    loss = "Σ_kept w_i [SLR(p_i) + SCE(p(aug x_i), p_i)] / B, w = exp(w_div w_cert / τ)"
    published = {
        "merge": "0.99",
        "rate": "0.9",
        "temperature": "1/3",
        "reference_batch": "the configured batch size",
        "lr": "Adam 1e-3 (CIFAR, batches of 200), SGD 2.5e-4 with Nesterov 0.9 (ImageNet, 64)",
    }
    differs = {
        "released": "multiplies the logits by the prior (output='prior-released'), which leaves"
        " no confidence in them"
    }

    variant: str = "paper"
    merge: float = 0.99
    rate: float = 0.9
    temperature: float = 1 / 3
    consistency: bool = True
    reference_batch: int | None = None
    augment: str | Callable[[Tensor], Tensor] = "roid"

    def implied(self, classes: int) -> Mapping[str, Any]:
        return {"output": "prior-released" if self.variant == "released" else "prior"}

    def check(self) -> None:
        super().check()
        self.require(0 <= self.merge <= 1, "merge", wanted="a share in [0, 1]")
        self.require(0 <= self.rate <= 1, "rate", wanted="a momentum in [0, 1]")
        self.require(self.temperature > 0, "temperature", wanted="a number above 0")
        good = self.reference_batch is None or self.reference_batch >= 1
        self.require(good, "reference_batch", wanted="at least 1 sample")

    def start(self, model: Classifier) -> None:
        super().start(model)
        self.average: Tensor | None = None  # moving mean of the predictions

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        logits = model(x)
        weight, kept = self._weights(logits.detach())
        self.kept = kept
        rows = kept.nonzero().flatten()
        if len(rows) == 0:  # no weight is a number: the model overflowed
            return logits
        loss = soft_likelihood_ratio(logits[rows])
        if self.consistency:  # of the kept images, a batch of their own
            other = model(self.augmented(model, x[rows]))
            loss = loss + symmetric_cross_entropy(other, logits[rows])
        descend(self.opt, (weight[rows] * loss).sum() / (self.reference_batch or len(x)))
        self.pull_back(model)
        return logits

    def pull_back(self, model: Classifier) -> None:
        """Weight ensembling: what was learned is kept, but never far from the source."""
        pull(model.adapted, model.origin, 1 - self.merge)

    def _weights(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """w = exp(w_div w_cert / τ); kept are those that differ from the mean prediction by the
        average of the batch, or more. Then that mean moves."""
        probabilities = logits.softmax(1)
        uniform = torch.full_like(probabilities[0], 1 / logits.shape[1])
        average = uniform if self.average is None else self.average.to(uniform)
        diverse = scaled(1 - F.cosine_similarity(average[None], probabilities, dim=1))
        certain = scaled(-entropy(logits))
        self.average = average.lerp(probabilities.mean(0), 1 - self.rate)
        return (diverse * certain / self.temperature).exp(), diverse >= diverse.mean()


def scaled(values: Tensor) -> Tensor:
    """To [0, 1] over the batch; 0 where all are equal, as in a batch of one."""
    low, high = values.aminmax()
    return (values - low) / (high - low).clamp(min=torch.finfo(values.dtype).tiny)
