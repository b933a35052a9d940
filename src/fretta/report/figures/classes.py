"""Who got worse? The change of each class against the source model."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ..data import ReportData
from ..palette import BLUE, RED
from .base import WIDTH, Figure, Value, plain
from .canvas import LONGEST, Canvas
from .panels import Panel, class_names, summed

MOST = 11  # methods
WIDE = 12  # classes with a column of their own; of more, the extremes


def class_accuracy(panel: Panel, data: ReportData, label: str) -> NDArray[np.float64] | None:
    """Accuracy per class over all domains and seeds; NaN for classes that do not occur."""
    seen = summed(data, panel.runs[label], "class_seen")
    right = summed(data, panel.runs[label], "class_right")
    if not seen or not right:
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        result: NDArray[np.float64] = np.where(seen[0] > 0, right[0] / seen[0], np.nan)
    return result


def build(panel: Panel, data: ReportData) -> Figure | None:
    if "source" not in panel.runs:
        return None
    source = class_accuracy(panel, data, "source")
    if source is None:
        return None
    change: dict[str, NDArray[np.float64]] = {}
    for label in panel.chosen(MOST + 1):
        mine = class_accuracy(panel, data, label)
        if label != "source" and mine is not None and len(mine) == len(source):
            change[label] = 100 * (mine - source)
    if not change:
        return None
    shown = extremes(np.nanmean([np.nan_to_num(c) for c in change.values()], axis=0), WIDE)
    names = class_names(panel, data, len(source))
    rows: list[list[Value]] = [
        [names[c], _round(100 * source[c]), *(_round(values[c]) for values in change.values())]
        for c in range(len(source))
    ]
    losses = {k: int((v < 0).sum()) for k, v in change.items()}
    worst = min(change, key=lambda k: float(np.nanmin(change[k])))
    which = int(np.nanargmin(change[worst]))
    few = "" if len(shown) == len(source) else f" Of {len(source)} classes, the extremes are shown."
    return Figure(
        name=f"classes-{panel.name}",
        title=f"Change per class against source: {panel.title}",
        caption=(
            f"Percentage points of accuracy that each class gains (blue) or loses (red) against"
            f" the source model, over all domains, on {panel.about()}. A mean can rise while a"
            f" class is given up.{few}{panel.left_out(MOST + 1)}"
        ),
        alt=(
            f"The least gain is {float(change[worst][which]):+.1f} points, of class {names[which]}"
            f" under {plain(worst)}; "
            + f"{sum(map(bool, losses.values()))} of {len(change)} methods lost on some class."
        ),
        group="runs",
        header=["class", "source %", *(f"{plain(k)}, points" for k in change)],
        rows=rows,
        series=[],
        paint=lambda canvas: _paint(canvas, change, {c: names[c] for c in shown}),
        height=_top(names[c] for c in shown) + 19 * len(change) + 8,
    )


def _round(value: float) -> float | None:
    return None if not np.isfinite(value) else round(float(value), 2)


def extremes(mean: NDArray[np.float64], most: int) -> list[int]:
    """All classes, or the half that lost most and the half that gained most, in order."""
    if len(mean) <= most:
        return list(range(len(mean)))
    ranked = np.argsort(mean, kind="stable")
    return sorted(int(c) for c in [*ranked[: most // 2], *ranked[-(most // 2) :]])


def _signed(value: float) -> str:
    """+12, −0.6, 0"""
    if not np.isfinite(value):
        return "–"
    text = f"{value:+.0f}" if abs(value) >= 0.95 else f"{value:+.1f}"
    return "0" if float(text) == 0 else text.replace("-", "−")


def _top(names: Iterable[str]) -> float:
    """Room above the matrix: numbers lie flat, names are slanted."""
    return 40 if max(map(len, names)) <= 2 else 90


def _paint(canvas: Canvas, change: dict[str, NDArray[np.float64]], shown: dict[int, str]) -> None:
    top_px = _top(shown.values())
    left = 12 + 5.6 * min(LONGEST, max(map(len, change)))
    last = list(shown.values())[-1]  # slanted, it reaches beyond its column
    right = 8 if top_px == 40 else max(8.0, 4 * min(LONGEST, len(last)) - 8)
    ax = canvas.axes(left, top_px, WIDTH - left - right, 19 * len(change))
    canvas.blank(ax)
    table = np.array([values[list(shown)] for values in change.values()])
    top = max(float(np.nanmax(np.abs(table))), 1e-9)
    canvas.cells(ax, np.clip(table, 0, None) / top, BLUE, most=0.6, gap=1)
    canvas.cells(ax, np.clip(-table, 0, None) / top, RED, most=0.75, gap=1)
    for (row, column), value in np.ndenumerate(table):
        canvas.text(ax, column + 0.5, row + 0.5, _signed(value), ha="center")
        label = f"{list(change)[row]}, class {list(shown.values())[column]}: {value:+.1f} points"
        canvas.point(ax, column + 0.5, row + 0.5, None, label)
    canvas.names(ax, [i + 0.5 for i in range(len(change))], list(change), "y")
    ax.xaxis.tick_top()
    at = [i + 0.5 for i in range(len(shown))]
    canvas.names(ax, at, list(shown.values()), slant=45 if top_px > 40 else 0, above=True)
    canvas.words(ax, y="class")
