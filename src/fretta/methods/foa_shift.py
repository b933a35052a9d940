"""FOA's activation shift: test-time model adaptation with only forward passes.

Niu, Miao, Chen, Wu, Zhao, ICML 2024, https://arxiv.org/abs/2404.01650. Its other half, prompts of a
vision transformer found by CMA-ES, is not here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..method import Method, Need
from ..parts.classifier import Classifier


@dataclass
class FOAShift(Method):
    """Move the embeddings of the stream to where those of the source images were, on average.

    momentum      of the running mean embedding of the stream
    source_size   source images to measure their mean embedding on
    """

    key = "foa-shift"
    summary = "embeddings shifted to the mean of the source's"
    needs = frozenset({Need.HEAD, Need.SOURCE})
    gradient = False
    loss = "none; returns head(z + m_S - m̂), m̂ the running mean of earlier batches"
    published = {"momentum": "0.9", "source_size": "all clean validation images in the code"}

    momentum: float = 0.9
    source_size: int = 50_000

    def check(self) -> None:
        super().check()
        self.require(0 <= self.momentum < 1, "momentum", wanted="a number in [0, 1)")
        self.require(self.source_size >= 1, "source_size", wanted="at least 1 image")

    def fit(self, model: Classifier, source: Iterable[Tensor]) -> None:
        """m_S: mean embedding of the source images."""
        total, seen = torch.zeros((), dtype=torch.float64, device=model.device), 0
        with torch.no_grad():
            for x in source:
                z, _ = model.features(x)
                total, seen = total + z.double().sum(0), seen + len(z)
                if seen >= self.source_size:
                    break
        self.source_mean = (total / seen).to(z.dtype)

    def start(self, model: Classifier) -> None:
        self.mean: Tensor | None = None  # m̂: of the embeddings of earlier batches

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        z, logits = model.features(x)
        shifted = self._shifted(model, z, logits)
        now = z.mean(0)
        old = now if self.mean is None else self.mean
        self.mean = self.momentum * old + (1 - self.momentum) * now
        return shifted

    def forward(self, model: Classifier, x: Tensor) -> Tensor:
        return self._shifted(model, *model.features(x))

    def _shifted(self, model: Classifier, z: Tensor, logits: Tensor) -> Tensor:
        if self.mean is None:  # the first batch: nothing is known of the stream
            return logits
        return model.head(z + (self.source_mean - self.mean).to(z.dtype))
