"""Who else predicts a batch: the model without learning, and the source model."""

from __future__ import annotations

from functools import cached_property

from torch import Tensor

from ..learner import Learner


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
