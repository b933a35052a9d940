"""The measured change: by hand, and against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fretta.estimate import Measured


def test_by_hand() -> None:
    found = Measured(images=100, source_right=50, gained=20, lost=5, level=0.9)
    assert (found.source, found.adapted, found.change) == (0.5, 0.65, 0.15)
    # Agresti and Min: half an image in each cell, then Wald
    center = 15 / 102
    error = math.sqrt((20.5 + 5.5) - 15**2 / 102) / 102
    assert found.interval == pytest.approx(
        (center - 1.6449 * error, center + 1.6449 * error), abs=1e-5
    )
    # 25 tosses of a coin, five or fewer heads or tails
    tail = sum(math.comb(25, i) for i in range(6)) / 2**25
    assert found.p == pytest.approx(2 * tail)
    assert found.helps is True
    assert Measured(100, 50, 5, 20).helps is False
    assert Measured(100, 50, 9, 5).helps is None


def test_nothing_changed() -> None:
    same = Measured(10, 5, 0, 0)
    assert (same.p, same.helps, same.change) == (1.0, None, 0.0)
    low, high = same.interval
    assert low == -high < 0


@pytest.mark.parametrize(("gained", "lost"), [(0, 1), (3, 3), (20, 7), (160, 60), (5000, 4800)])
def test_the_exact_test_is_that_of_scipy(gained: int, lost: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binomtest(gained, gained + lost).pvalue
    assert Measured(20_000, 10_000, gained, lost).p == pytest.approx(expected, rel=1e-8)


def test_the_interval_holds_as_often_as_it_says() -> None:
    """Over draws of 200 images with known chances of gain and loss."""
    random, held = np.random.default_rng(0), 0
    for _ in range(1000):
        gained, lost, _ = random.multinomial(200, [0.08, 0.04, 0.88])
        low, high = Measured(200, 100, int(gained), int(lost)).interval
        held += low <= 0.04 <= high
    assert held >= 880  # 900 are meant; the spread of 1,000 draws is 9.5


def test_the_sentence() -> None:
    text = str(Measured(512, 300, 160, 60))
    assert text.startswith("helps (measured): +19.5 points (+14.9 to +24.0)")
    assert "p < 0.001 on 512 labeled images" in text
