"""Is a difference more than noise? One test, of each row of a table against one reference.

Scores are DataFrames indexed by (seed, domain): `value`, the `images` it is a share of, and where
they are known `right` and `sizes`, the right answers and the images of each batch.

Equal seeds mean equal batches, so two methods are compared batch by batch. The difference of two
means is divided by its standard error, whose square is the sum of two parts:

* images: how much the difference varies from batch to batch within a domain of a run. Seeds show
  the same images in another order, so more seeds do not make this part smaller;
* seeds: how much it varies from seed to seed, with two seeds or more.

Without batches to compare, the first part follows from the number of images alone, as if the two
methods had seen different ones, which is cautious. For a measure that is no share of images there
is a paired t-test over seeds and domains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from ..errors import MissingExtraError

LEVEL = 0.05
LEAST = 5  # degrees of freedom: with fewer batches, their spread says too little
ROUNDING = 1e-12


@dataclass(frozen=True)
class Test:
    """How much higher the first scores are over the common seeds, and whether that is chance."""

    difference: float
    seeds: int
    p: float | None  # None: nothing to test with
    basis: str = ""  # what was compared: "batches", "images" or "domains"
    n: int = 0  # and how many

    @property
    def distinct(self) -> bool:
        return self.p is not None and self.p < LEVEL


def compare(first: DataFrame, second: DataFrame) -> Test | None:
    """The test of `first` minus `second`; None if the two have no seed in common."""
    if not first.index.equals(second.index):
        common = first.index.intersection(second.index)
        if common.empty:
            return None
        first, second = first.loc[common], second.loc[common]
    gaps = first["value"].to_numpy() - second["value"].to_numpy()
    numbers = first.index.get_level_values("seed").to_numpy()
    by_seed = np.array([gaps[numbers == seed].mean() for seed in np.unique(numbers)])
    mean, seeds = float(by_seed.mean()), len(by_seed)
    found = _by_batch(first, second, seeds) or _by_images(first, second, seeds)
    if found is not None:
        variance, df, basis, n = found
        return Test(mean, seeds, _p(mean, variance + _variance(by_seed), df), basis, n)
    if len(gaps) < 2:
        return Test(mean, seeds, None)
    p = _p(mean, _variance(gaps), len(gaps) - 1)
    return Test(mean, seeds, p, "domains", len(gaps))


def _variance(values: NDArray[np.float64]) -> float:
    """Of their mean; 0 for a single value."""
    return float(values.var(ddof=1)) / len(values) if len(values) > 1 else 0.0


def _p(difference: float, variance: float, df: float) -> float:
    """Two-sided, of Student's t; no spread at all is certain, unless there is no difference."""
    if variance < ROUNDING**2:
        return 1.0 if abs(difference) < ROUNDING else 0.0
    try:
        from scipy.special import stdtr
    except ModuleNotFoundError as error:
        raise MissingExtraError("scipy", "report", "the tests below tables") from error
    return float(2 * stdtr(df, -abs(difference) / variance**0.5))


Found = tuple[float, float, str, int]  # variance, degrees of freedom, what was compared, how many


def _by_batch(first: DataFrame, second: DataFrame, seeds: int) -> Found | None:
    """From batch to batch within each domain of each run, per image; pooled over these."""
    squares, df, batches, variance = 0.0, 0, 0, 0.0
    weight = seeds / len(first) ** 2  # a mean over seeds of means over domains
    for right, sizes, other, same in zip(
        first["right"], first["sizes"], second["right"], second["sizes"], strict=True
    ):
        if right is None or other is None or not np.array_equal(sizes, same):
            return None
        gaps = right - other
        expected = sizes * (gaps.sum() / sizes.sum())
        squares += float(((gaps - expected) ** 2 / sizes).sum())
        df, batches = df + len(gaps) - 1, batches + len(gaps)
        variance += weight / float(sizes.sum())
    if df < LEAST or squares == 0:
        return None
    return variance * squares / df, df, "batches", batches


def _by_images(first: DataFrame, second: DataFrame, seeds: int) -> Found | None:
    """From the two shares of right answers, as if the images were different ones."""
    variance = 0.0
    for scores in (first, second):
        share, images = scores["value"].to_numpy(), scores["images"].to_numpy()
        if not images.all():
            return None
        variance += float((share * (1 - share) / images).sum()) * seeds / len(share) ** 2
    return variance, np.inf, "images", int(first["images"].sum()) // seeds


def rank(scores: DataFrame) -> tuple[dict[int, str], list[Test]]:
    """Marks of the rows of a column, and the tests of the others against the highest mean.

    `scores` are indexed by (row, seed, domain). A mark is "best", "tie" (not distinguishable from
    the best), "untested" or "".
    """
    means = scores["value"].groupby(["row", "seed"]).mean().groupby("row").mean()
    marks: dict[int, str] = {}
    tests: list[Test] = []
    if len(means) < 2:
        return marks, tests
    best = means.idxmax()
    highest = scores.loc[best]
    for row, mean in means.items():
        if means[best] - mean < ROUNDING:
            marks[row] = "best"
            continue
        test = compare(highest, scores.loc[row])
        if test is None or test.p is None:
            marks[row] = "untested"
        else:
            marks[row] = "" if test.distinct else "tie"
            tests.append(test)
    return marks, tests


def basis(tests: Sequence[Test]) -> str:
    """In words, what tests compared."""
    words = []
    for kind in dict.fromkeys(t.basis for t in tests if t.p is not None):
        mine = [t for t in tests if t.basis == kind]
        n, seeds = _range([t.n for t in mine]), _range([t.seeds for t in mine])
        of = f"{seeds} seed{'' if seeds == '1' else 's'}"
        if kind == "batches":
            words.append(f"paired over the {n} batches of {of}")
        elif kind == "images":
            words.append(f"from the number of images ({n}), not paired; {of}")
        else:
            words.append(f"paired t-test over {n} pairs of seed and domain")
    return "; ".join(words)


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
