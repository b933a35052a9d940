"""One batch: what a stream yields, which images it shows, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ConfigError, FrettaError
from .domain import Domain, Unreadable
from .order import Indices


@dataclass(frozen=True, eq=False)
class Batch:
    """What flows past: `x` goes to the adapter, everything else around it."""

    x: Tensor  # uint8 (n, 3, H, W)
    y: Tensor  # int64 (n,)
    domain: str  # "mixed" where the images come from several
    domains: Indices  # (n,) number of each image's domain in the data set
    index: Indices  # (n,) position in that domain
    number: int  # of the batch in the stream
    reset: bool = False  # the adapter starts afresh before this batch
    skipped: tuple[Unreadable, ...] = ()

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.x.shape[1:]))
        return f"<Batch {self.number}: {len(self)} images ({shape}) of {self.domain!r}>"

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True, eq=False)
class Plan:
    """Which images, in which order, in which batches. Plain arrays."""

    domain: Indices
    index: Indices
    edges: Indices  # batch b is samples edges[b] to edges[b + 1]
    resets: NDArray[np.bool_]

    def __repr__(self) -> str:
        return (
            f"<Plan: {len(self.index):,} images in {len(self):,} batches of up to {self.largest}>"
        )

    def __len__(self) -> int:
        return len(self.resets)

    @property
    def largest(self) -> int:
        """Images of the largest batch."""
        return int(np.diff(self.edges).max(initial=0))

    def batch(self, number: int) -> tuple[Indices, Indices]:
        part = slice(int(self.edges[number]), int(self.edges[number + 1]))
        return self.domain[part], self.index[part]


@dataclass(frozen=True)
class Decoded:
    """A batch as it leaves a worker: arrays, or the error that stopped it."""

    x: NDArray[np.uint8]
    kept: Indices  # positions in the planned batch
    skipped: tuple[Unreadable, ...] = ()
    error: FrettaError | None = None


@dataclass(frozen=True, eq=False)
class Reader:
    """Decodes a batch by number. This is what worker processes get."""

    domains: Sequence[Domain]
    plan: Plan
    errors: str

    def __len__(self) -> int:
        return len(self.plan)

    def __getitem__(self, number: int) -> Decoded:
        try:
            return self.read(number)
        except FrettaError as error:  # raised again, with its own type, where the batch is used
            return Decoded(np.zeros((0, 3, 1, 1), np.uint8), np.zeros(0, np.int64), error=error)

    def read(self, number: int) -> Decoded:
        domain, index = self.plan.batch(number)
        images, places, skipped = [], [], []
        for which in np.unique(domain):
            place = np.flatnonzero(domain == which)
            if self.errors == "skip":
                pixels, kept, failures = self.domains[which].read_some(index[place])
                place = place[kept]
                skipped += failures
            else:
                pixels = self.domains[which].read(index[place])
            if len(pixels):
                images.append(pixels)
                places.append(place)
        if not images:
            return Decoded(np.zeros((0, 3, 1, 1), np.uint8), np.zeros(0, np.int64), tuple(skipped))
        shapes = {pixels.shape[1:] for pixels in images}
        if len(shapes) > 1:
            raise ConfigError(
                f"batch {number} mixes images of shapes {sorted(shapes)}; open the data set "
                "with size="
            )
        together = np.concatenate(places)
        order = np.argsort(together)  # back into the order of the stream
        x = np.concatenate(images)[order].transpose(0, 3, 1, 2)
        return Decoded(np.ascontiguousarray(x), together[order], tuple(skipped))
