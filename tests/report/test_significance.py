"""The test behind the marks: numbers worked by hand, and its rate of false alarms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fretta.report.significance import Part, Sample, Series, basis, compare, mean_of, rank


def shares(*values: float, images: int = 1000, first: int = 0) -> Series:
    """One domain by seed, of which only the number of images is known."""
    return {first + i: Sample(v, (), (Part(v, images),)) for i, v in enumerate(values)}


def batches(*seeds: list[int] | NDArray[np.int64], size: int = 10) -> Series:
    """One domain by seed: how many of each batch were right."""
    found = {}
    for seed, right in enumerate(seeds):
        counts, sizes = np.array(right), np.full(len(right), size)
        value = float(counts.sum() / sizes.sum())
        found[seed] = Sample(value, (), (Part(value, int(sizes.sum()), (counts, sizes)),))
    return found


def p_of(first: Series, second: Series) -> float:
    test = compare(first, second)
    assert test is not None
    assert test.p is not None
    return test.p


def test_batches_by_hand() -> None:
    """One domain of one run is a paired t-test over its batches."""
    a, b = batches([8, 9, 7, 8, 9, 10]), batches([7, 7, 7, 6, 8, 7])
    test = compare(a, b)
    assert test is not None
    assert (test.basis, test.n, test.seeds) == ("batches", 6, 1)
    # Differences 1, 2, 0, 2, 1, 3: mean 1.5, deviation 1.0488, t = 3.5032 with 5 degrees.
    assert test.difference == pytest.approx(0.15)
    assert test.p == pytest.approx(0.01722, abs=1e-4)


def test_images_by_hand() -> None:
    few, many = (shares(0.6, images=n) for n in (50, 5000))
    # z = 0.1 / sqrt((0.24 + 0.25) / 50) = 1.0102
    assert p_of(few, shares(0.5, images=50)) == pytest.approx(0.3124, abs=1e-3)
    assert p_of(many, shares(0.5, images=5000)) < 1e-6


def test_other_measures_are_paired_over_seeds_and_domains() -> None:
    a, b = (
        {s: Sample(sum(v) / 2, (), tuple(Part(x) for x in v)) for s, v in enumerate(values)}
        for values in (((0.2, 0.4), (0.6, 0.9)), ((0.1, 0.2), (0.3, 0.5)))
    )
    test = compare(a, b)
    assert test is not None
    # Differences 0.1, 0.2, 0.3, 0.4: mean 0.25, deviation 0.1291, t = 3.873 with 3 degrees.
    assert (test.basis, test.n) == ("domains", 4)
    assert test.p == pytest.approx(0.0305, abs=1e-4)
    lonely = compare({0: Sample(0.5)}, {0: Sample(0.4)})
    assert lonely is not None
    assert lonely.p is None
    assert not lonely.distinct


@pytest.mark.parametrize("paired", [True, False])
def test_a_further_seed_never_hides_a_large_difference(paired: bool) -> None:
    """58.4 against 75.2 % of 2,000 images. Two seeds that differ by a point and a half used to
    make them indistinguishable."""
    draw = np.random.default_rng(0)
    worse, best = [0.584, 0.599, 0.571, 0.58, 0.59], [0.752, 0.744, 0.757, 0.76, 0.75]

    def made(values: list[float]) -> Series:
        if not paired:
            return shares(*values, images=2000)
        return batches(*(draw.binomial(100, v, 20) for v in values), size=100)

    for seeds in range(1, 6):
        p = p_of(made(best[:seeds]), made(worse[:seeds]))
        assert p < 1e-6, (seeds, p)


def test_pairing_sees_what_the_number_of_images_hides() -> None:
    """Batches differ by much more than the methods do."""
    right = [40, 90, 60, 75, 50, 85, 65, 95]
    a, b = batches(right, size=100), batches([r - 2 + r % 3 for r in right], size=100)
    assert compare(a, b).distinct  # type: ignore[union-attr]
    assert not compare(*(shares(s[0].value, images=800) for s in (a, b))).distinct  # type: ignore[union-attr]


def test_seeds_that_disagree_are_noise() -> None:
    """A method that collapses in one order of three is not worse for certain."""
    steady, collapses = shares(0.75, 0.75, 0.75), shares(0.8, 0.3, 0.8)
    assert not compare(steady, collapses).distinct  # type: ignore[union-attr]


def test_seeds_do_not_make_more_images() -> None:
    """The same images in another order: what they cannot tell, five orders of them cannot."""
    one, five = (compare(shares(*[0.52] * n), shares(*[0.5] * n)) for n in (1, 5))
    assert one is not None
    assert five is not None
    assert five.p == pytest.approx(one.p)


def test_false_alarms_are_as_rare_as_stated() -> None:
    """Two equally good methods that agree on most images: 5 % of the tests say they differ."""
    draw = np.random.default_rng(1)
    alarms, trials = 0, 400
    for _ in range(trials):
        agree = draw.random((3, 8, 64)) < 0.9
        own = draw.random((2, 3, 8, 64)) < 0.7
        both = draw.random((3, 8, 64)) < 0.7
        a, b = (
            mean_of([batches(d, size=64) for d in np.where(agree, both, mine).sum(2)])
            for mine in own
        )
        alarms += compare(a, b).distinct  # type: ignore[union-attr]
    spread = math.sqrt(0.05 * 0.95 / trials)
    assert abs(alarms / trials - 0.05) < 4 * spread


def test_only_common_seeds_count() -> None:
    test = compare(shares(0.1, 0.2, 0.3), shares(0.1, 0.1, first=2))
    assert test is not None
    assert (test.seeds, test.difference) == (1, pytest.approx(0.2))
    assert compare(shares(0.1), shares(0.2, first=5)) is None


def test_batches_that_differ_are_not_paired() -> None:
    other = batches([7, 7, 7, 6, 8, 7], size=11)
    assert compare(batches([8, 9, 7, 8, 9, 10]), other).basis == "images"  # type: ignore[union-attr]
    few = compare(batches([8, 9]), batches([7, 7]))
    assert few is not None
    assert few.basis == "images"  # two batches say nothing about their spread


def test_equal_predictions_are_equal() -> None:
    same = batches([8, 9, 7, 8, 9, 10])
    assert p_of(same, same) == 1.0
    assert p_of(shares(1.0), shares(1.0)) == 1.0


def test_the_highest_mean_alone_is_best() -> None:
    marks = rank([shares(0.2), shares(0.70), shares(0.71), {}]).marks
    assert marks == ("", "tie", "best", "")
    many = [*(shares(0.584, 0.59, 0.58) for _ in range(19)), shares(0.752, 0.75, 0.755)]
    assert rank(many).marks == ("",) * 19 + ("best",)
    assert rank([shares(0.7, 0.7), shares(0.7, 0.7), shares(0.1, 0.1)]).marks == (
        *("best", "best", ""),
    )


def test_columns_without_a_rival_and_rivals_without_a_common_seed() -> None:
    assert rank([shares(0.1, 0.2), {}]).marks == ("", "")
    assert rank([]).marks == ()
    assert rank([shares(0.5, 0.5), shares(0.9, 0.9, first=7)]).marks == ("untested", "best")


def test_the_test_in_words() -> None:
    ranking = rank([shares(0.5, 0.5), shares(0.9, 0.9), shares(0.6, 0.6, 0.6)])
    words = basis(ranking.tests)
    assert "(1,000)" in words
    assert "2 seeds" in words
    assert "batches" not in words
    assert "6 batches of 1 seed" in basis(
        rank([batches([8, 9, 7, 8, 9, 10]), batches([7, 7, 7, 6, 8, 7])]).tests
    )
