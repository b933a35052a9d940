"""Is a difference more than noise? One test, of each row against one reference.

Equal seeds mean equal batches, so two methods are compared batch by batch. The difference of two
means is divided by its standard error, which has two parts:

* images: how much the difference varies from batch to batch within a domain of a run. Seeds show
  the same images in another order, so more seeds do not make this part smaller;
* seeds: how much it varies from seed to seed, with two seeds or more.

Without batches to compare, the first part follows from the number of images alone, as if the two
methods had seen different ones, which is cautious. For a measure that is no share of images there
is a paired t-test over seeds and domains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtraError
from ..experiment.results import mean_and_deviation

LEVEL = 0.05
LEAST = 5  # degrees of freedom: with fewer batches, their spread says too little
ROUNDING = 1e-12

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Part:
    """A measure on one domain of one run."""

    value: float
    images: int = 0  # that it is a share of; 0 if it is none
    batches: tuple[Counts, Counts] | None = None  # right answers and images, batch by batch


@dataclass(frozen=True)
class Sample:
    """A value of one run, the mean of its parts; and the keys of the records behind it."""

    value: float
    keys: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()


Series = Mapping[int, Sample]  # by seed


def mean_of(each: Sequence[Series]) -> Series:
    """The mean of several series, for the seeds that have them all."""
    seeds = set.intersection(*(set(s) for s in each)) if each else set()
    return {
        seed: Sample(
            sum(s[seed].value for s in each) / len(each),
            tuple(dict.fromkeys(k for s in each for k in s[seed].keys)),
            tuple(p for s in each for p in s[seed].parts),
        )
        for seed in sorted(seeds)
    }


@dataclass(frozen=True)
class Test:
    """How much higher the first series is over the common seeds, and whether that is chance."""

    difference: float
    seeds: int
    p: float | None  # None: nothing to test with
    basis: str = ""  # what was compared: "batches", "images" or "domains"
    n: int = 0  # and how many

    @property
    def distinct(self) -> bool:
        return self.p is not None and self.p < LEVEL


def compare(first: Series, second: Series) -> Test | None:
    """The test of `first` minus `second`; None if the two have no seed in common."""
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        return None
    gaps = np.array([first[s].value - second[s].value for s in seeds])
    mean = float(gaps.mean())
    pairs = [list(zip(first[s].parts, second[s].parts, strict=False)) for s in seeds]
    found = _by_batch(pairs) or _by_images(pairs)
    if found is None:
        cells = np.array([a.value - b.value for each in pairs for a, b in each] or gaps)
        p = _p(mean, _variance(cells), len(cells) - 1) if len(cells) > 1 else None
        return Test(mean, len(seeds), p, "domains" if p is not None else "", len(cells))
    variance, df, basis, n = found
    return Test(mean, len(seeds), _p(mean, variance + _variance(gaps), df), basis, n)


def _variance(values: NDArray[np.float64]) -> float:
    """Of their mean; 0 for a single value."""
    return float(values.var(ddof=1)) / len(values) if len(values) > 1 else 0.0


def _p(difference: float, variance: float, df: float) -> float:
    """Two-sided; no spread at all is certain, unless there is no difference."""
    if variance < ROUNDING**2:
        return 1.0 if abs(difference) < ROUNDING else 0.0
    special = _scipy()
    t = -abs(difference) / variance**0.5
    return float(2 * (special.ndtr(t) if np.isinf(df) else special.stdtr(df, t)))


def _scipy() -> Any:
    try:
        from scipy import special
    except ModuleNotFoundError as error:
        raise MissingExtraError("scipy", "report", "the tests below tables") from error
    return special


Pairs = Sequence[Sequence[tuple[Part, Part]]]  # by seed, by domain
Found = tuple[float, float, str, int]  # variance, degrees of freedom, what was compared, how many


def _by_batch(pairs: Pairs) -> Found | None:
    """From batch to batch within each domain of each run, per image; pooled over these."""
    squares, df, batches, variance = 0.0, 0, 0, 0.0
    for domains in pairs:
        for a, b in domains:
            if a.batches is None or b.batches is None:
                return None
            (right, sizes), (other, same) = a.batches, b.batches
            if not np.array_equal(sizes, same):
                return None
            gaps = right - other
            expected = sizes * (gaps.sum() / sizes.sum())
            squares += float(((gaps - expected) ** 2 / sizes).sum())
            df, batches = df + len(gaps) - 1, batches + len(gaps)
            variance += 1 / float(sizes.sum()) / len(domains) ** 2 / len(pairs)
    if df < LEAST or squares == 0:
        return None
    return variance * squares / df, df, "batches", batches


def _by_images(pairs: Pairs) -> Found | None:
    """From the two shares of right answers, as if the images were different ones."""
    variance, images = 0.0, 0
    for domains in pairs:
        for a, b in domains:
            if not a.images or not b.images:
                return None
            shares = sum(p.value * (1 - p.value) / p.images for p in (a, b))
            variance += shares / len(domains) ** 2 / len(pairs)
            images += a.images
    return (variance, np.inf, "images", images // len(pairs)) if images else None


@dataclass(frozen=True)
class Ranking:
    """The highest of a column, and which of the others cannot be told from it."""

    marks: tuple[str, ...]  # per series: "best", "tie", "untested" or ""
    tests: tuple[Test, ...] = ()  # of the others against the highest


def rank(series: Sequence[Series]) -> Ranking:
    """Mark a column. Each row is tested against the highest mean, by itself."""
    means = {
        i: mean_and_deviation([s.value for s in each.values()])[0]
        for i, each in enumerate(series)
        if each
    }
    marks, tests = [""] * len(series), []
    if len(means) < 2:
        return Ranking(tuple(marks))
    best = max(means, key=lambda i: means[i])
    for i, mean in means.items():
        if means[best] - mean < ROUNDING:
            marks[i] = "best"
            continue
        test = compare(series[best], series[i])
        if test is None or test.p is None:
            marks[i] = "untested"
        else:
            marks[i] = "" if test.distinct else "tie"
            tests.append(test)
    return Ranking(tuple(marks), tuple(tests))


def basis(tests: Sequence[Test]) -> str:
    """In words, what tests compared."""
    told = []
    for kind in dict.fromkeys(t.basis for t in tests if t.p is not None):
        mine = [t for t in tests if t.basis == kind]
        n, seeds = _range([t.n for t in mine]), _range([t.seeds for t in mine])
        of = f"{seeds} seed{'' if seeds == '1' else 's'}"
        if kind == "batches":
            told.append(f"paired over the {n} batches of {of}")
        elif kind == "images":
            told.append(f"from the number of images ({n}), not paired; {of}")
        else:
            told.append(f"paired t-test over {n} pairs of seed and domain")
    return "; ".join(told)


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
