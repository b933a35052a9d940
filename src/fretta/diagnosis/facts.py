"""What was measured, as plain data. Advice and page are made of this and nothing else."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .moments import LayerShift, quarter

# A class is predicted too often if its share exceeds what is expected by more than confusions
# (a twentieth, as in estimate/sums.py) and two standard deviations of a sampled share.
CONFUSED = 0.05
DOUBT = 2.0


@dataclass(frozen=True)
class Outputs:
    """What a model makes of some images."""

    images: int
    predicted: list[int]  # how often each class
    confidence: float
    entropy: float  # mean of the predictions', in nats
    marginal_entropy: float  # of the mean prediction
    redundancy: float | None = None  # normalized score of batches of `batch` images
    batch: int = 0

    @property
    def effective_classes(self) -> float:
        """exp of the marginal entropy: as many classes, equally often, have that entropy."""
        return math.exp(self.marginal_entropy)


@dataclass(frozen=True)
class Largest:
    """The class that most exceeds its expected share."""

    number: int
    share: float
    expected: float
    allowed: float  # a larger share is more than confusions and sampling explain

    @property
    def uneven(self) -> bool:
        return self.share > self.allowed


def sampled(share: float, images: int) -> float:
    """Two standard deviations of a share in so many images."""
    return DOUBT * math.sqrt(share * (1 - share) / max(1, images))


def largest_class(counts: Sequence[int], prior: Sequence[float] | None = None) -> Largest:
    """By counts of predictions, against equal shares or those of `prior`."""
    n, classes = max(1, sum(counts)), len(counts)
    expected = list(prior) if prior is not None else [1 / classes] * classes
    allowed = [p + CONFUSED + sampled(p, n) for p in expected]
    number = max(range(classes), key=lambda c: counts[c] / n - allowed[c])
    return Largest(number, counts[number] / n, expected[number], allowed[number])


def kind_of_reason(why: str) -> str:
    """Without the path that Pillow puts at the end, so that reasons can be counted."""
    return re.sub(r"\s+(file )?'[^']*'$", "", why) or why


@dataclass(frozen=True)
class Files:
    """What lies on disk, before the model sees it."""

    files: int
    unreadable: list[tuple[str, str]] = field(default_factory=list)  # (file, why)
    sizes: dict[str, int] = field(default_factory=dict)  # "640×480" -> files, as far as looked at
    duplicates: int = 0  # images that nearly equal another one
    neighbors: int = 0  # those whose other one lies beside them by name: a burst, frames
    gray: int = 0  # images without color
    groups: list[list[str]] = field(default_factory=list)  # some of the near-duplicates


@dataclass(frozen=True)
class Facts:
    """Everything that `fretta diagnose` measures."""

    images: int
    batch_size: int  # the one to adapt with
    batch_norms: int  # layers with running statistics
    norms: int  # normalization layers of any kind
    layers: list[LayerShift]  # in the order of the forward; empty where there is no reference
    outputs: Outputs
    batch_predicted: list[int] | None = None  # how often each class, with batch statistics
    prior: list[float] | None = None
    files: Files | None = None
    source: Outputs | None = None
    source_layers: list[LayerShift] = field(default_factory=list)

    @property
    def classes(self) -> int:
        return len(self.outputs.predicted)

    @property
    def moved(self) -> float | None:
        """Mean over the layers of their distance from the source, in standard deviations."""
        return _mean(self.layers)

    @property
    def early(self) -> float | None:
        """The first quarter of the layers."""
        return _mean(self.layers[: quarter(len(self.layers))])

    @property
    def late(self) -> float | None:
        """The last quarter of the layers."""
        return _mean(self.layers[len(self.layers) - quarter(len(self.layers)) :])

    @property
    def source_moved(self) -> float | None:
        """The same for source images: what is no shift at all."""
        return _mean(self.source_layers)

    @property
    def batch_noise(self) -> float | None:
        """What a batch adds to the distance by its size alone."""
        size = max(1, min(self.batch_size, self.images))
        noises = [layer.noise_of_batch(size) for layer in self.layers]
        return sum(noises) / len(noises) if noises else None

    @property
    def largest(self) -> Largest:
        """Of the model as it is."""
        return largest_class(self.outputs.predicted, self.prior)

    @property
    def batch_largest(self) -> Largest | None:
        """Of the same model with batch statistics."""
        if self.batch_predicted is None or not sum(self.batch_predicted):
            return None
        return largest_class(self.batch_predicted, self.prior)

    def to_json(self) -> dict[str, Any]:
        names = ("classes", "moved", "early", "late", "source_moved", "batch_noise")
        derived = {name: getattr(self, name) for name in names}
        layers = [
            {**asdict(layer), "moved": layer.moved, "ratio": layer.ratio} for layer in self.layers
        ]
        largest = {**asdict(self.largest), "uneven": self.largest.uneven}
        return {**asdict(self), **derived, "largest": largest, "layers": layers}


def _mean(layers: Sequence[LayerShift]) -> float | None:
    return sum(layer.moved for layer in layers) / len(layers) if layers else None
