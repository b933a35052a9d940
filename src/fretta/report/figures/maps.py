"""Heat maps as paths: small, crisp at any size, and without an embedded picture."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVELS = 20  # shades


@dataclass(frozen=True)
class Map:
    """A heat map for a page: shades (0 … LEVELS), its corner and the size of a cell in px."""

    levels: NDArray[Any]
    color: str
    most: float
    place: tuple[float, float]
    size: tuple[float, float]
    gap: float

    def paths(self) -> Iterator[tuple[float, str]]:
        """(opacity, path) per shade; neighbors in a row are one rectangle."""
        (x0, y0), (w, h), g = self.place, self.size, self.gap
        for level in range(1, LEVELS + 1):
            parts = []
            for row in np.flatnonzero((self.levels == level).any(1)):
                mask = np.concatenate([[0], self.levels[row] == level, [0]]).astype(np.int8)
                edges = np.flatnonzero(np.diff(mask))
                for a, b in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
                    pieces = [(c, c + 1) for c in range(a, b)] if g else [(a, b)]
                    for left, right in pieces:
                        x, wide = x0 + left * w + g / 2, (right - left) * w - g
                        y = y0 + int(row) * h + g / 2
                        parts.append(f"M{x:.2f} {y:.2f}h{wide:.2f}v{h - g:.2f}h{-wide:.2f}z")
            if parts:
                yield self.most * level / LEVELS, "".join(parts)


def even(side: float, cells: int) -> float:
    """A side of at most so many px in which each cell covers whole pixels of a PNG."""
    return max(math.floor(2 * side / cells) / 2, 0.5) * cells if cells <= 2 * side else side
