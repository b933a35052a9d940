"""The tests behind "best", against tables of the t distribution and numbers worked by hand."""

from __future__ import annotations

import math

import pytest

from fretta.report.significance import Sample, compare, holm, rank, student_p


def series(*values: float, first: int = 0, variance: float | None = None) -> dict[int, Sample]:
    return {first + i: Sample(v, variance) for i, v in enumerate(values)}


@pytest.mark.parametrize(
    ("df", "t"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (9, 2.26216)]
)
def test_student_against_the_printed_table(df: int, t: float) -> None:
    assert student_p(t, df) == pytest.approx(0.05, abs=1e-5)
    assert student_p(-t, df) == student_p(t, df)
    assert student_p(0.0, df) == 1.0
    assert student_p(math.inf, df) == 0.0


def test_the_paired_test_by_hand() -> None:
    # Differences 1, 2, 3: mean 2, deviation 1, t = 2 / (1 / sqrt 3) = 3.4641 with 2 degrees.
    test = compare(series(2, 4, 6), series(1, 2, 3))
    assert test is not None
    assert (test.difference, test.n) == (2.0, 3)
    assert test.p == pytest.approx(0.0742, abs=1e-4)
    # For two degrees p = 1 - t / sqrt(t² + 2).
    assert test.p == pytest.approx(1 - math.sqrt(12 / 14))


def test_pairing_sees_what_means_hide() -> None:
    """Seeds differ by 10 points, methods by 1: unpaired it is nothing, paired it is certain."""
    test = compare(series(11.0, 21.1, 31.0), series(10, 20, 30))
    assert test is not None
    assert test.p is not None
    assert test.p < 0.01


def test_only_common_seeds_count() -> None:
    test = compare(series(1, 2, 3), series(0, 0, first=2))
    assert test is not None
    assert (test.n, test.difference) == (1, 3.0)
    assert test.p is None  # one value, and no word about images
    assert compare(series(1), series(2, first=5)) is None


def test_no_spread_at_all() -> None:
    same = compare(series(0.5, 0.5), series(0.5, 0.5))
    shifted = compare(series(0.6, 0.6), series(0.5, 0.5))
    assert same is not None
    assert shifted is not None
    assert (same.p, shifted.p) == (1.0, 0.0)


def test_one_seed_is_judged_by_the_number_of_images() -> None:
    def share(value: float, images: int) -> dict[int, Sample]:
        return {0: Sample(value, value * (1 - value) / images)}

    few, many = (compare(share(0.6, n), share(0.5, n)) for n in (50, 5000))
    assert few is not None
    assert many is not None
    # z = 0.1 / sqrt((0.24 + 0.25) / 50) = 1.0102
    assert few.p == pytest.approx(0.3124, abs=1e-3)
    assert not few.distinct
    assert many.distinct


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_best_stands_alone_only_beyond_noise() -> None:
    clear = rank([series(0.5, 0.51, 0.5), series(0.7, 0.71, 0.7), series(0.9, 0.91, 0.9)])
    assert clear.marks == ("", "second", "best")
    assert clear.alone
    assert clear.n == 3
    noisy = rank([series(0.1, 0.11, 0.1), series(0.80, 0.84, 0.79), series(0.81, 0.82, 0.81)])
    assert noisy.marks == ("", "tie", "tie")
    assert not noisy.alone


def test_lower_may_be_better_and_lonely_columns_have_no_best() -> None:
    assert rank([series(1, 1.1), series(9, 9.1)], higher=False).marks == ("best", "second")
    assert rank([series(1, 2), {}]).marks == ("", "")
    assert rank([]).marks == ()


def test_the_highest_is_marked_untested_where_seeds_differ() -> None:
    assert rank([series(0.5, 0.5), series(0.9, 0.9, first=7)]).marks == ("second", "top")
