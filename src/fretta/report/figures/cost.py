"""Accuracy against cost: what a point more costs in time per batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...experiment.results import mean_and_deviation
from ..palette import style
from .base import WIDTH, Figure, Value, plain
from .canvas import Canvas
from .panels import Panel

MOST = 16


def build(panel: Panel) -> Figure | None:
    rows: list[list[Value]] = []
    points: list[dict[str, Any]] = []
    base = _seconds(panel, "source") if "source" in panel.runs else None
    for label in panel.chosen(MOST):
        seconds = _seconds(panel, label)
        values = [r.overall["mean_over_domains"] for r in panel.runs[label]]
        mean, deviation = mean_and_deviation(values)
        if not seconds:
            continue
        passes = panel.runs[label][0].rows[0].get("passes")
        ratio = None if not base else round(seconds / base, 2)
        rows.append(
            [
                *(label, round(1000 * seconds, 2), ratio, passes, round(100 * mean, 2)),
                None if deviation is None else round(100 * deviation, 2),
            ]
        )
        points.append({"label": label, "ms": 1000 * seconds, "mean": mean, "std": deviation})
    if len(points) < 2:
        return None
    best = max(points, key=lambda p: p["mean"])
    cheap = min(
        (p for p in points if p["mean"] >= best["mean"] - 0.005), key=lambda p: float(p["ms"])
    )
    return Figure(
        name=f"cost-{panel.name}",
        title=f"Accuracy against cost: {panel.title}",
        caption=(
            f"Mean accuracy over domains and time per batch (logarithmic) on {panel.about()}. Up"
            " and to the left is better; bars are the standard deviation over seeds. Times of"
            f" runs that shared a machine with others are too long.{panel.left_out(MOST)}"
        ),
        alt=(
            f"{plain(best['label'])} is the most accurate at {100 * best['mean']:.1f} %; the"
            f" cheapest within half a point of it is {plain(cheap['label'])} at {cheap['ms']:.3g}"
            " ms per batch."
        ),
        group="runs",
        header=["method", "ms per batch", "× source", "passes", "accuracy %", "± %"],
        rows=rows,
        series=[p["label"] for p in points],
        paint=lambda canvas: _paint(canvas, points),
        height=270,
    )


def _seconds(panel: Panel, label: str) -> float | None:
    """The median over seeds: one run beside a busy neighbor does not count."""
    found = [r.overall.get("seconds_per_batch") for r in panel.runs[label]]
    there = [s for s in found if s]
    return float(np.median(there)) if there else None


def _paint(canvas: Canvas, points: list[dict[str, Any]]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    ax = canvas.axes(34, 28, WIDTH - 34 - 20, 195)
    canvas.words(ax, x="ms per batch", y="accuracy %")
    ax.set_xscale("log")
    ms, means = [p["ms"] for p in points], [100 * p["mean"] for p in points]
    room = max((max(ms) / min(ms)) ** 0.12, 1.15)
    ax.set_xlim(min(ms) / room, max(ms) * room**1.8)
    span = max(max(means) - min(means), 1.0)
    ax.set_ylim(min(means) - 0.12 * span, max(means) + 0.12 * span)
    low, high = ax.get_xlim()
    steps = [m * 10.0**e for e in range(-4, 7) for m in (1, 2, 5)]
    ticks = [t for t in steps if low <= t <= high]
    if len(ticks) > 7:
        ticks = [t for t in ticks if np.isclose(np.log10(t) % 1, 0)]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticklabels([f"{t:g}" for t in ticks])
    for number, p in enumerate(points):
        look = style(p["label"])
        x, y = p["ms"], 100 * p["mean"]
        if p["std"]:
            (bar,) = ax.plot(
                [x, x], [y - 100 * p["std"], y + 100 * p["std"]], color=look.color, linewidth=1
            )
            canvas.mark(bar, number)
        (dot,) = ax.plot(
            [x], [y], marker=look.marker, color=look.color, markersize=6.5, markeredgewidth=0
        )
        canvas.mark(dot, number)
        canvas.point(ax, x, y, number, f"{p['label']}: {y:.1f} %, {x:.3g} ms per batch")
    canvas.tags(ax, [(p["ms"], 100 * p["mean"], p["label"], n) for n, p in enumerate(points)])
