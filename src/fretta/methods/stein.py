"""Stein: statistics that fit the stream, and no learning.

Batch-norm statistics begin at the source's and follow the stream as far as it can be told from
noise, balanced over predicted classes (parts/adaptive.py). Where that makes predictions less
certain than the source model's, the source model predicts (parts/gate.py).

The shrinkage is that of James and Stein, "Estimation with quadratic loss", 1961. What is known to
work is in docs/auto.md, with measurements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import warn
from ..method import Method
from ..parts.classifier import Classifier
from ..parts.gate import Gate


@dataclass
class Stein(Method):
    """Batch norms follow the stream; the source model speaks where that does not help.

    hedge   mix predictions with the source model's, by their certainty
    """

    key = "stein"
    summary = "statistics that fit the stream, no learning"
    gradient = False
    passes = "2F"
    settles = True
    lasting: ClassVar[tuple[str, ...]] = ("gate", "batches")
    published_statistics = "adaptive"
    loss = "none; adaptive statistics, predictions mixed with the source model's by their certainty"

    hedge: bool = True

    def configure(self, model: Classifier) -> None:
        super().configure(model)
        if not model.batch_norms and not self.gradient:  # auto learns all the same
            warn(f"{self.key}: the model has no batch-norm layer, so this equals 'source'")

    def start(self, model: Classifier) -> None:
        super().start(model)
        self.gate = Gate()
        self.batches = 0

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        self.batches += 1
        if not self.hedges(model):
            return model.settle(x)
        if self.gate.closed and self.batches % 2:
            return source_logits(model, x)  # look every other batch
        logits = model.settle(x)
        return self.hedged(model, x, logits)

    def watch(self, model: Classifier, x: Tensor) -> Tensor:
        return Stein.step(self, model, x)

    def hedged(self, model: Classifier, x: Tensor, logits: Tensor) -> Tensor:
        """The mean of these predictions and the source model's, weighted by the gate."""
        gate = self.gate
        places = gate.places(len(x))
        source = source_logits(model, x[places])
        gate.add(logits[places], source, model.changed)
        if gate.open:
            return logits
        if len(source) < len(x):
            source = source_logits(model, x)
        return gate.blend(logits, source)

    def hedges(self, model: Classifier) -> bool:
        """Without statistics that could do harm there is nothing to hedge."""
        return self.hedge and model.statistics is not None

    @property
    def batch_share(self) -> float:
        return 1.0

    @property
    def source_share(self) -> float:
        return self.gate.source_share if self.hedge else 0.0

    @torch.no_grad()
    def source_share_on(self, model: Classifier, images: Iterable[Tensor]) -> float:
        """Compared anew: no later batch has judged what the last one taught."""
        if not self.hedges(model):
            return 0.0
        gate = Gate()
        gate.clock = math.inf
        for x in images:
            gate.add(model(x), source_logits(model, x))
        return gate.source_share

    def forward(self, model: Classifier, x: Tensor) -> Tensor:
        gate = self.gate
        if gate.open or not self.hedges(model):
            return model(x)
        source = source_logits(model, x)
        return source if gate.closed else gate.blend(model(x), source)


@torch.no_grad()
def source_logits(model: Classifier, x: Tensor) -> Tensor:
    with model.as_source():
        return model(x)
