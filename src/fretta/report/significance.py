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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    return _compare(_cells(first), _cells(second))


# By (seed, domain): value, images, right answers and sizes of batches.
Cells = dict[tuple[Any, ...], tuple[float, int, Any, Any]]


def _cells(scores: DataFrame) -> Cells:
    columns = (scores[name].tolist() for name in ("value", "images", "right", "sizes"))
    return dict(zip(scores.index.tolist(), zip(*columns, strict=True), strict=True))


def _by_seed(values: Mapping[tuple[Any, ...], float]) -> list[float]:
    """Means over the domains of each seed."""
    found: dict[Any, list[float]] = {}
    for (seed, _), value in values.items():
        found.setdefault(seed, []).append(value)
    return [sum(each) / len(each) for each in found.values()]


def _compare(first: Cells, second: Cells) -> Test | None:
    common = [where for where in first if where in second]
    if not common:
        return None
    pairs = [(first[where], second[where]) for where in common]
    gaps = {where: a[0] - b[0] for where, (a, b) in zip(common, pairs, strict=True)}
    by_seed = np.array(_by_seed(gaps))
    mean, seeds = float(by_seed.mean()), len(by_seed)
    found = _by_batch(pairs, seeds) or _by_images(pairs, seeds)
    if found is not None:
        variance, df, basis, n = found
        return Test(mean, seeds, _p(mean, variance + _variance(by_seed), df), basis, n)
    if len(gaps) < 2:
        return Test(mean, seeds, None)
    p = _p(mean, _variance(np.array(list(gaps.values()))), len(gaps) - 1)
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


Pairs = Sequence[tuple[tuple[float, int, Any, Any], tuple[float, int, Any, Any]]]
Found = tuple[float, float, str, int]  # variance, degrees of freedom, what was compared, how many


def _by_batch(pairs: Pairs, seeds: int) -> Found | None:
    """From batch to batch within each domain of each run, per image; pooled over these."""
    for (*_, right, sizes), (*_, other, same) in pairs:
        if right is None or other is None or not np.array_equal(sizes, same):
            return None
    lengths = [len(a[3]) for a, _ in pairs]
    starts = np.cumsum([0, *lengths[:-1]])
    sizes = np.concatenate([a[3] for a, _ in pairs])
    gaps = np.concatenate([a[2] for a, _ in pairs]) - np.concatenate([b[2] for _, b in pairs])
    images = np.add.reduceat(sizes, starts)
    expected = sizes * np.repeat(np.add.reduceat(gaps, starts) / images, lengths)
    squares = float(((gaps - expected) ** 2 / sizes).sum())
    df = len(gaps) - len(pairs)
    if df < LEAST or squares == 0:
        return None
    # a mean over seeds of means over domains
    variance = float((1 / images).sum()) * seeds / len(pairs) ** 2
    return variance * squares / df, df, "batches", len(gaps)


def _by_images(pairs: Pairs, seeds: int) -> Found | None:
    """From the two shares of right answers, as if the images were different ones."""
    cells = [cell for pair in pairs for cell in pair]
    if not all(images for _, images, *_ in cells):
        return None
    total = sum(share * (1 - share) / images for share, images, *_ in cells)
    images = sum(first[1] for first, _ in pairs)
    return total * seeds / len(pairs) ** 2, np.inf, "images", images // seeds


def rank(scores: DataFrame) -> tuple[dict[int, str], list[Test]]:
    """Marks of the rows of a column, and the tests of the others against the highest mean.

    `scores` are indexed by (row, seed, domain). A mark is "best", "tie" (not distinguishable from
    the best), "untested" or "".
    """
    rows: dict[int, Cells] = {}
    for (row, *where), cell in _cells(scores).items():
        rows.setdefault(row, {})[tuple(where)] = cell
    marks: dict[int, str] = {}
    tests: list[Test] = []
    if len(rows) < 2:
        return marks, tests
    by_seed = {row: _by_seed({k: c[0] for k, c in cells.items()}) for row, cells in rows.items()}
    means = {row: sum(values) / len(values) for row, values in by_seed.items()}
    best = max(means, key=means.__getitem__)
    for row, mean in means.items():
        if means[best] - mean < ROUNDING:
            marks[row] = "best"
            continue
        test = _compare(rows[best], rows[row])
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
