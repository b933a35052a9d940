"""Which classes are taken for which, before and after adaptation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..data import ReportData
from ..palette import BLUE
from .base import WIDTH, Figure, Value, plain
from .canvas import Canvas
from .maps import even
from .panels import SEEDS, Panel, class_names


def shares(panel: Panel, data: ReportData, label: str) -> NDArray[np.float64] | None:
    """(label, predicted) -> share of the label's images, over all domains and seeds."""
    found = [(data.details(r.key) or {}).get("confusion") for r in panel.runs[label][:SEEDS]]
    there = [np.asarray(c, dtype=float) for c in found if c is not None]
    if not there:
        return None
    total = np.sum(there, axis=0)
    result: NDArray[np.float64] = total / np.maximum(total.sum(1, keepdims=True), 1)
    return result


def build(panel: Panel, data: ReportData) -> Figure | None:
    """Source beside G-FRET, or beside the best method there is."""
    if "source" not in panel.runs:
        return None
    others = [k for k in panel.chosen(99) if k != "source"]
    after = "g-fret" if "g-fret" in others else next(iter(others), "")
    before = shares(panel, data, "source")
    matrices = {"source": before, after: shares(panel, data, after) if after else None}
    there = {k: m for k, m in matrices.items() if m is not None}
    if len(there) < 2:
        return None
    worst = {k: _worst(m) for k, m in there.items()}
    size = len(next(iter(there.values())))
    names = class_names(panel, data, size)
    rows: list[list[Value]] = [
        [k, names[i], names[j], round(100 * float(m[i, j]), 2)]
        for k, m in there.items()
        for i, j in _largest(m, 20)
    ]
    told = "; ".join(
        f"{plain(k)}: {names[i]} taken for {names[j]} in {100 * there[k][i, j]:.0f} %"
        for k, (i, j) in worst.items()
    )
    return Figure(
        name=f"confusion-{panel.name}",
        title=f"Confusion before and after: {panel.title}",
        caption=(
            f"Rows are labels, columns predictions; the shade is the share of the label's images,"
            f" on {panel.about()}, {size} classes, over all domains. A full column is a class that"
            " everything is taken for. The table lists the 20 largest confusions of each."
        ),
        alt=f"Most frequent confusion of {told}.",
        group="runs",
        header=["method", "label", "predicted", "% of the label"],
        rows=rows,
        series=[],
        paint=lambda canvas: _paint(canvas, there, names),
        height=276 if _named(names) else 256,
    )


def _largest(matrix: NDArray[np.float64], most: int) -> list[tuple[int, int]]:
    off = matrix - np.diag(np.diag(matrix))
    ranked = np.argsort(-off, axis=None, kind="stable")[:most]
    return [divmod(int(flat), len(matrix)) for flat in ranked if off.flat[flat] > 0]


def _worst(matrix: NDArray[np.float64]) -> tuple[int, int]:
    return next(iter(_largest(matrix, 1)), (0, 0))


def _named(names: list[str]) -> bool:
    """Whether names stand along the axes: there are few, and they are no numbers."""
    return len(names) <= 20 and max(map(len, names)) > 2


def _paint(canvas: Canvas, there: dict[str, NDArray[np.float64]], names: list[str]) -> None:
    named = _named(names)
    side = even(160.0 if named else 180.0, len(names))
    lefts = (72.0 if named else 22.0, WIDTH - side - 4)
    for left, (label, matrix) in zip(lefts, there.items(), strict=False):
        ax = canvas.axes(left, 28, side, side, label)
        canvas.blank(ax)
        canvas.cells(ax, matrix, BLUE, most=0.9, gap=0.6 if len(matrix) <= 20 else 0.0)
        if len(matrix) <= 20:
            at = [i + 0.5 for i in range(len(matrix))]
            canvas.names(ax, at, names, "x", slant=50 if named else 0)
            if not named or left == lefts[0]:  # the rows of the other are the same
                canvas.names(ax, at, names, "y")
        for i, j in _largest(matrix, 10):
            text = f"{label}: {names[i]} taken for {names[j]} in {100 * matrix[i, j]:.1f} %"
            canvas.point(ax, j + 0.5, i + 0.5, None, text)
    height = canvas.height - 16
    canvas.scale(WIDTH / 2 - 35, height, BLUE, "0", "100 % of the label", most=0.9)
