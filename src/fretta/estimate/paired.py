"""Where labels are known: the measured change of accuracy, with its interval and a paired test."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any


@dataclass(frozen=True)
class Measured:
    """Two models on the same labeled images: how many answers were gained, how many lost."""

    images: int  # labeled, seen by both models
    source_right: int
    gained: int  # wrong by the source model, right when adapted
    lost: int  # the other way round
    level: float = 0.9

    @property
    def source(self) -> float:
        return self.source_right / self.images

    @property
    def adapted(self) -> float:
        return (self.source_right + self.gained - self.lost) / self.images

    @property
    def change(self) -> float:
        return (self.gained - self.lost) / self.images

    @property
    def interval(self) -> tuple[float, float]:
        """Of the change, for paired proportions: Agresti and Min, Statistics in Medicine 2005.

        The Wald interval after half an image is added to each cell of the 2 x 2 table.
        """
        gained, lost, n = self.gained + 0.5, self.lost + 0.5, self.images + 2
        center = (gained - lost) / n
        error = math.sqrt(gained + lost - (gained - lost) ** 2 / n) / n
        half = NormalDist().inv_cdf(0.5 + self.level / 2) * error
        return max(-1.0, center - half), min(1.0, center + half)

    @property
    def p(self) -> float:
        """Exact McNemar test: two sides of a fair coin, tossed once per answer gained or lost."""
        n, k = self.gained + self.lost, min(self.gained, self.lost)
        whole = math.lgamma(n + 1) - n * math.log(2)
        tail = (math.exp(whole - math.lgamma(i + 1) - math.lgamma(n - i + 1)) for i in range(k + 1))
        return min(1.0, 2 * math.fsum(tail))

    @property
    def helps(self) -> bool | None:
        """None: the difference may be chance."""
        return None if self.p > 1 - self.level else self.gained > self.lost

    def to_json(self) -> dict[str, Any]:
        low, high = self.interval
        return {**asdict(self), "change": self.change, "low": low, "high": high, "p": self.p}
