"""The curves of summary.html: their scale can be read off."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fretta.deploy.page import HEIGHT, WIDTH, chart, ticks


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.238, 0.798, [0.2, 0.4, 0.6, 0.8]),
        (40.6, 75, [40, 50, 60, 70, 80]),
        (0, 1, [0, 0.5, 1]),
        (-1.2e-5, 3e-5, [-2e-5, 0, 2e-5, 4e-5]),
        (99.99, 100.01, [99.99, 99.995, 100, 100.005, 100.01]),
    ],
)
def test_ticks_are_round_and_enclose(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize("last", [1, 2, 7, 50, 2399])
def test_batches_are_whole_numbers(last: int) -> None:
    found = ticks(0, last, integers=True)
    assert found[0] == 0
    assert 2 <= len(found) <= 6
    assert all(value == int(value) <= last for value in found)


@pytest.mark.parametrize(
    ("curve", "batches"),
    [
        ([0.3], 1),
        ([0.3, 0.3], 2),
        ([1.8, 1.8 + 4e-16], 2),
        ([0.0, 0.0, math.nan, 0.0], 4),
        ([2.0, math.nan, 1.0, 5e4], 4),
        ([1e-9 * i for i in range(240)], 100_000),
    ],
)
def test_axes_enclose_the_curve(curve: list[float], batches: int) -> None:
    drawn = chart([np.array(curve)], [0.5], "title", "nats", batches)
    levels = [float(text) for _, text in drawn["y_ticks"]]
    assert min(levels) <= np.nanmin(curve) <= np.nanmax(curve) <= max(levels) * (1 + 1e-9)
    assert drawn["x_ticks"][0][1] == "0"
    ((_, points),) = drawn["lines"]
    assert len(points) == np.isfinite(curve).sum()
    for x, y in points:
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
