"""Who else predicts a batch: the model without learning, and the source model."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

from torch import Tensor

from ..method import Method
from ..parts.classifier import Classifier


class Learner(Protocol):
    """What the supervisor needs of an adapter."""

    model: Classifier
    method: Method
    head_input: Tensor | None  # what entered the head in the last forward

    def learn(self, x: Tensor) -> Tensor: ...  # predict and adapt
    def current(self, x: Tensor) -> Tensor: ...  # predict only
    def watch(self, x: Tensor) -> Tensor: ...  # predict; statistics may move, nothing is learned
    def unlearned_forward(self, x: Tensor) -> Tensor: ...  # the statistics, without learning
    def source_forward(self, x: Tensor) -> Tensor: ...
    def start_over(self) -> None: ...  # model and method in their initial state
    def unlearn(self) -> None: ...  # the same, but statistics that move stay where they are


class References:
    """Logits of a batch, computed when they are first asked for."""

    def __init__(self, learner: Learner, x: Tensor) -> None:
        self.learner, self.x = learner, x

    @cached_property
    def unlearned(self) -> Tensor:
        return self.learner.unlearned_forward(self.x)

    @cached_property
    def source(self) -> Tensor:
        return self.learner.source_forward(self.x)
