"""Does adapting help, in a word or a sentence: measured where labels are known, else estimated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Protocol

from .estimator import Estimate
from .shares import Dominant

HELPS = {True: "helps", False: "hurts", None: "cannot tell"}
FEW = 32  # images, below which no estimate tells anything
UNCHANGED = "no change"  # no prediction differs from the source model's


@dataclass(frozen=True)
class Measured:
    """Two models on the same labeled images: correct predictions gained and lost by adapting."""

    images: int
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
        return exact_p(self.gained, self.lost)

    @property
    def p_text(self) -> str:
        return "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"

    @property
    def helps(self) -> bool | None:
        """None: the difference may be chance."""
        return None if self.p > 1 - self.level else self.gained > self.lost

    def __str__(self) -> str:
        low, high = map(points, self.interval)
        return (
            f"{HELPS[self.helps]} (measured): {points(self.change)} points ({low} to {high}),"
            f" {self.p_text} on {self.images:,} labeled images"
        )

    def to_json(self) -> dict[str, Any]:
        low, high = self.interval
        return {**asdict(self), "change": self.change, "low": low, "high": high, "p": self.p}


def exact_p(gained: int, lost: int) -> float:
    """Exact McNemar test, two-sided: scipy's binomtest without scipy."""
    n, k = gained + lost, min(gained, lost)
    scale = math.lgamma(n + 1) - n * math.log(2)
    tail = (math.exp(scale - math.lgamma(i + 1) - math.lgamma(n - i + 1)) for i in range(k + 1))
    return min(1.0, 2 * math.fsum(tail))


def points(value: float) -> str:
    return f"{round(100 * value, 1) + 0.0:+.1f}"  # + 0.0: never -0.0


class Judged(Protocol):
    """Labels were seen."""

    @property
    def helps(self) -> bool | None: ...


def verdict(estimate: Estimate, measured: Judged | None = None) -> str:
    """helps, hurts, cannot tell, collapsed or no change. Labels override the estimate."""
    if measured is not None:
        return HELPS[measured.helps]
    if estimate.samples < FEW:
        return HELPS[None]
    if estimate.collapsed:
        return "collapsed"
    return UNCHANGED if not estimate.disagreement else HELPS[estimate.helps]


def unevenness(found: Dominant, names: Sequence[str]) -> str:
    name = names[found.number] if found.number < len(names) else f"class {found.number}"
    return f"classes look uneven: {100 * found.share:.0f} % predicted {name}"


def reason(estimate: Estimate, names: Sequence[str]) -> str:
    """Why an estimate cannot tell, if there is more to it than an interval that holds 0."""
    if estimate.samples < FEW:
        return f"too few images ({estimate.samples}; {FEW} or more are needed)"
    if verdict(estimate) != HELPS[None] or estimate.uneven is None:
        return ""
    return unevenness(estimate.uneven, names)


def estimate_text(estimate: Estimate, names: Sequence[str]) -> str:
    """The estimate as a sentence; `names` are those of the classes."""
    if why := reason(estimate, names):
        return f"cannot tell, {why}"
    word = verdict(estimate)
    if word == UNCHANGED:
        return "no prediction differs from the source model's"
    ends = f"{points(estimate.low)} to {points(estimate.high)}"
    text = f"{points(estimate.change)} points of accuracy ({ends}): "
    if word == "collapsed":
        return text + "the adapted model collapsed, it predicts far fewer classes"
    return text + (word if estimate.helps is None else f"adapting {word}")


def tests_used(level: float) -> str:
    return (
        "Interval for paired proportions after Agresti and Min, exact McNemar test; a verdict needs"
        f" p below {1 - level:g}."
    )
