"""A few images of the stream, balanced over the classes they are predicted as.

Which image stays is decided in plain numbers, image by image as the papers have it; the images
themselves are copied when they enter and gathered once per update. They are replaced and never
written to, so that a snapshot of the guard shares them.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor


class ImageMemory:
    """At most `size` images, in the order they came, each with its label and what a rule needs.

    The rule here is the plainest: the oldest goes (FIFO). Subclasses write `_leaving`.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.images: list[Tensor] = []
        self.labels: list[int] = []
        self.uncertainty: list[float] = []
        self.births: list[int] = []  # the clock when they came
        self.clock = 0  # images seen so far
        self.seen: dict[int, int] = {}  # of each label

    def __len__(self) -> int:
        return len(self.images)

    def add(
        self,
        image: Tensor,
        label: int,
        uncertainty: float = 0.0,
        draws: Sequence[float] = (0.0, 0.0, 0.0),
    ) -> None:
        """Offer an image; the rule says whose place it takes, or that it is not kept.

        draws   numbers in [0, 1) for rules that draw: by which class one leaves, which of its
                images, and whether it does
        """
        if self.images and self.images[0].shape != image.shape:
            for values in self._lists():  # images of another size cannot form a batch with it
                values.clear()
        self.seen[label] = self.seen.get(label, 0) + 1
        leaving = self._leaving(label, uncertainty, draws)
        if leaving is not None:
            if leaving >= 0:
                for values in self._lists():
                    del values[leaving]
            self.images.append(image.detach().clone(memory_format=torch.contiguous_format))
            self.labels.append(label)
            self.uncertainty.append(uncertainty)
            self.births.append(self.clock)
        self.clock += 1

    def batch(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """(images, ages): by class, and as they came within one."""
        order = sorted(range(len(self)), key=self.labels.__getitem__)
        ages = [self.clock - self.births[i] for i in order]
        images = torch.stack([self.images[i] for i in order])
        return images.to(like), torch.tensor(ages, dtype=like.dtype, device=like.device)

    def _leaving(self, label: int, uncertainty: float, draws: Sequence[float]) -> int | None:
        """The place of the image that goes, -1 if none has to, None if the new one is not kept."""
        return 0 if len(self) >= self.size else -1

    def _largest(self) -> list[int]:
        """The classes that hold most images."""
        held = Counter(self.labels)
        most = max(held.values(), default=0)
        return sorted(c for c, n in held.items() if n == most)

    def _lists(self) -> tuple[list[Any], ...]:
        """What is held of each image."""
        return self.images, self.labels, self.uncertainty, self.births

    # ---- state ------------------------------------------------------------------------------

    PLAIN = ("labels", "uncertainty", "births", "clock", "seen")

    def snapshot(self) -> Self:
        """An independent copy that shares the images."""
        twin = copy.copy(self)
        for name, value in vars(self).items():
            setattr(twin, name, value.copy() if isinstance(value, list | dict) else value)
        return twin

    def state_dict(self) -> dict[str, Any]:
        images = torch.stack(self.images) if self.images else None
        return {"images": images, **{name: getattr(self, name) for name in self.PLAIN}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        images = state["images"]
        self.images = [] if images is None else [image.clone() for image in images]
        for name in self.PLAIN:
            value = state[name]
            setattr(self, name, value.copy() if isinstance(value, list | dict) else value)


class TimelyMemory(ImageMemory):
    """Category-balanced, timely and certain (RoTTA): the old and uncertain leave, by a score

    λ_t / (1 + exp(-age / M)) + λ_u · entropy / ln C.
    """

    def __init__(self, size: int, lambda_t: float, lambda_u: float) -> None:
        super().__init__(size)
        self.lambda_t, self.lambda_u = lambda_t, lambda_u
        self.classes = 2  # C, told before the first image

    def score(self, age: int, uncertainty: float) -> float:
        timely = 1 / (1 + math.exp(-age / self.size))
        return self.lambda_t * timely + self.lambda_u * uncertainty / math.log(self.classes)

    def _leaving(self, label: int, uncertainty: float, draws: Sequence[float]) -> int | None:
        crowded = [label]
        if self.labels.count(label) < self.size / self.classes:
            if len(self) < self.size:
                return -1
            crowded = self._largest()
        worst = max(
            (self.score(self.clock - self.births[i], self.uncertainty[i]), self.labels[i], i)
            for i in range(len(self))
            if self.labels[i] in crowded
        )
        return worst[2] if worst[0] > self.score(0, uncertainty) else None


class ReservoirMemory(ImageMemory):
    """Prediction-balanced reservoir sampling (NOTE): each image of a class stays equally likely."""

    def _leaving(self, label: int, uncertainty: float, draws: Sequence[float]) -> int | None:
        if len(self) < self.size:
            return -1
        largest = self._largest()
        if label not in largest:
            label = largest[int(draws[0] * len(largest))]
        elif draws[2] > self.labels.count(label) / self.seen[label]:
            return None
        places = [i for i, other in enumerate(self.labels) if other == label]
        return places[int(draws[1] * len(places))]
