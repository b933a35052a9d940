"""The source model, unchanged: what every method must beat."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..method import Method
from ..parts.classifier import Classifier


@dataclass
class Source(Method):
    """Predict with the model as it was trained: eval mode, running statistics."""

    key = "source"
    summary = "the model as it was trained"
    gradient = False
    adapts = False
    loss = "none"

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        return model(x)
