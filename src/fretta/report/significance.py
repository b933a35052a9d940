"""Is the best better than noise? Paired over seeds: equal seeds mean equal streams.

* Two or more common seeds: the paired t-test on the differences, two-sided.
* One common seed: a z-test on the two shares of right answers. It takes the images as independent
  samples; both methods saw the same ones, which only makes it cautious.
* Within a column, the p values of all rivals of the best are corrected by Holm's rule, at 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..results import mean_and_deviation

LEVEL = 0.05


@dataclass(frozen=True)
class Sample:
    """A value of one run, and the variance that drawing other images would give it."""

    value: float
    variance: float | None = None
    keys: tuple[str, ...] = ()


Series = Mapping[int, Sample]  # by seed


@dataclass(frozen=True)
class Test:
    """How much higher the first series is, over `n` common seeds, and whether that is chance."""

    difference: float
    n: int
    p: float | None  # None: nothing to test with

    @property
    def distinct(self) -> bool:
        return self.p is not None and self.p < LEVEL


def student_p(t: float, df: int) -> float:
    """Two-sided p of Student's t; the finite sums for whole degrees of freedom (A&S 26.7.3-4)."""
    if math.isinf(t):
        return 0.0
    angle = math.atan(abs(t) / math.sqrt(df))
    sine, cosine = math.sin(angle), math.cos(angle)
    if df % 2:  # 2/π (θ + sin θ (cos θ + 2/3 cos³ θ + 2·4/(3·5) cos⁵ θ + …))
        term, total = cosine, 0.0
        for k in range(1, df - 1, 2):
            total += term
            term *= cosine**2 * (k + 1) / (k + 2)
        inside = 2 / math.pi * (angle + sine * total)
    else:  # sin θ (1 + 1/2 cos² θ + 1·3/(2·4) cos⁴ θ + …)
        term, total = 1.0, 0.0
        for k in range(0, df - 1, 2):
            total += term
            term *= cosine**2 * (k + 1) / (k + 2)
        inside = sine * total
    return min(1.0, max(0.0, 1.0 - inside))


def compare(first: Series, second: Series) -> Test | None:
    """The paired test; None if the two have no seed in common."""
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        return None
    gaps = [first[s].value - second[s].value for s in seeds]
    mean, deviation = mean_and_deviation(gaps)
    if deviation is None:
        return Test(mean, 1, _shares_p(first[seeds[0]], second[seeds[0]]))
    # Differences equal up to rounding: no spread at all is certain, unless there is no difference.
    if deviation < 1e-12:
        return Test(mean, len(seeds), 1.0 if abs(mean) < 1e-12 else 0.0)
    t = mean / (deviation / math.sqrt(len(gaps)))
    return Test(mean, len(seeds), student_p(t, len(gaps) - 1))


def _shares_p(first: Sample, second: Sample) -> float | None:
    if first.variance is None or second.variance is None:
        return None
    gap, spread = first.value - second.value, math.sqrt(first.variance + second.variance)
    if spread == 0:
        return 1.0 if gap == 0 else 0.0
    return math.erfc(abs(gap) / spread / math.sqrt(2))


def holm(ps: Sequence[float]) -> list[float]:
    """Corrected p values: the smallest times m, the next times m - 1, …, never decreasing."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    corrected, highest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, ps[i] * (len(ps) - rank)))
        corrected[i] = highest
    return corrected


@dataclass(frozen=True)
class Ranking:
    """Who is best in a column, who cannot be told from it, who comes next."""

    marks: tuple[str, ...]  # per series: "best", "tie", "top" (untested), "second" or ""
    n: int = 0  # fewest common seeds of the tests
    most: int = 0  # and most
    p: float | None = None  # of the best against the runner-up, corrected

    @property
    def alone(self) -> bool:
        return "best" in self.marks


def rank(series: Sequence[Series], higher: bool = True) -> Ranking:
    """Mark a column: "best" stands alone, "tie" is the best and all that may be as good, "top" is
    the highest where some rival shares no seed and so could not be tested."""
    means = [
        mean_and_deviation([s.value for s in each.values()])[0] if each else None for each in series
    ]
    known = [i for i, m in enumerate(means) if m is not None]
    marks = [""] * len(series)
    if len(known) < 2:
        return Ranking(tuple(marks))
    sign = 1 if higher else -1
    by_value = sorted(known, key=lambda i: -sign * (means[i] or 0.0))
    best, rivals = by_value[0], by_value[1:]
    tests = {i: t for i in rivals if (t := compare(series[best], series[i])) and t.p is not None}
    corrected = dict(zip(tests, holm([t.p or 0.0 for t in tests.values()]), strict=True))
    counts = [t.n for t in tests.values()] or [0]
    ties = [i for i in tests if corrected[i] >= LEVEL]
    for i in ties:
        marks[i] = "tie"
    untested = len(tests) < len(rivals)
    marks[best] = "tie" if ties else "top" if untested else "best"
    if not ties:
        marks[rivals[0]] = "second"
    return Ranking(tuple(marks), min(counts), max(counts), corrected.get(rivals[0]))
