"""What methods share that show the model changed images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from .._util import import_object
from ..method import GradientMethod
from ..models.preprocessing import input_scale
from ..parts import augment as parts
from ..parts.classifier import Classifier
from ..parts.random import seeded


@dataclass
class Augmented(GradientMethod):
    """A gradient method with an augmentation, drawn in pixel space by a generator of its own.

    augment     "cotta", "roid", "augmix", "flip" (the mirror image), "none", `module:function`, or
                a function of (N, C, H, W) pixels in [0, 1]
    mean, std   of the preprocessing, to turn inputs into pixels; None: as the model knows it
    seed        of the augmentation
    lr, optimizer, momentum: see GradientMethod.
    """

    augment: str | Callable[[Tensor], Tensor] = "cotta"
    mean: float | Sequence[float] | None = None
    std: float | Sequence[float] | None = None
    seed: int = 0

    def check(self) -> None:
        super().check()
        self._transform()

    def start(self, model: Classifier) -> None:
        super().start(model)
        self.generator = seeded(self.seed, model.device)
        # mean and std of the input, known from the first use on: no reset changes them
        self.scale: parts.Scale | None = getattr(self, "scale", None)

    def augmented(self, model: Classifier, x: Tensor) -> Tensor:
        """A new draw of the augmentation of a batch."""
        if self.scale is None:
            self.scale = parts.find_scale(self.mean, self.std, input_scale(model.net), x)
        return parts.augmented(x, self._transform(), self.scale, self.generator)

    def _transform(self) -> parts.Transform:
        given = self.augment
        named = isinstance(given, str) and ":" in given
        return parts.find_transform(import_object(str(given), "augment") if named else given)
