"""What an estimate says, and several of them as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..errors import InputError
from .balance import Dominant


@dataclass(frozen=True)
class Estimate:
    """Accuracy of both models on the images seen, and its change by adapting, all in [-1, 1]."""

    source: float
    adapted: float
    change: float
    low: float  # interval of the change
    high: float
    samples: int
    helps: bool | None  # None: cannot tell, the interval holds 0
    method: str = "capacity"
    level: float = 0.9  # how often the interval is meant to hold the truth
    disagreement: float = 0.0  # share of images on which the predictions differ
    collapsed: bool = False  # the adapted model predicts far fewer classes than the source model
    uneven: Dominant | None = None  # no prior, and both models call this class far too often


def combine(estimates: Sequence[Estimate]) -> Estimate:
    """Estimates of several domains as one, weighted by images.

    Better than one estimator over all of them: a model that falls into another class in every
    domain looks diverse from afar. Intervals are averaged too, as if all erred the same way.
    """
    if not estimates:
        raise InputError("there is nothing to combine: no estimate was given")
    if len(estimates) == 1:
        return estimates[0]
    samples = sum(e.samples for e in estimates)

    def mean(name: str) -> float:
        return float(sum(getattr(e, name) * e.samples for e in estimates) / samples)

    low, high = mean("low"), mean("high")
    return replace(
        estimates[0],
        source=mean("source"),
        adapted=mean("adapted"),
        change=mean("change"),
        disagreement=mean("disagreement"),
        low=low,
        high=high,
        samples=samples,
        helps=decided(low, high),
        collapsed=2 * sum(e.samples for e in estimates if e.collapsed) > samples,
        uneven=max((e.uneven for e in estimates if e.uneven), key=lambda u: u.share, default=None),
    )


def decided(low: float, high: float) -> bool | None:
    return True if low > 0 else False if high < 0 else None
