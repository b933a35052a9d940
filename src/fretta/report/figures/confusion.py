"""Which classes are taken for which, before and after adaptation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..data import ReportData
from ..palette import BLUE
from .base import WIDTH, Figure, Value, plain
from .canvas import Canvas
from .maps import even
from .panels import SEEDS, Panel


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
    rows: list[list[Value]] = [
        [k, int(i), int(j), round(100 * float(m[i, j]), 2)]
        for k, m in there.items()
        for i, j in _largest(m, 20)
    ]
    told = "; ".join(
        f"{plain(k)}: {i} taken for {j} in {100 * there[k][i, j]:.0f} %"
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
        paint=lambda canvas: _paint(canvas, there),
        height=256,
    )


def _largest(matrix: NDArray[np.float64], most: int) -> list[tuple[int, int]]:
    off = matrix - np.diag(np.diag(matrix))
    ranked = np.argsort(-off, axis=None, kind="stable")[:most]
    return [divmod(int(flat), len(matrix)) for flat in ranked if off.flat[flat] > 0]


def _worst(matrix: NDArray[np.float64]) -> tuple[int, int]:
    return next(iter(_largest(matrix, 1)), (0, 0))


def _paint(canvas: Canvas, there: dict[str, NDArray[np.float64]]) -> None:
    side = even(180.0, len(next(iter(there.values()))))
    for left, (label, matrix) in zip((22.0, WIDTH - side - 4), there.items(), strict=False):
        ax = canvas.axes(left, 28, side, side, label)
        canvas.blank(ax)
        canvas.cells(ax, matrix, BLUE, most=0.9, gap=0.6 if len(matrix) <= 20 else 0.0)
        if len(matrix) <= 20:
            at = [i + 0.5 for i in range(len(matrix))]
            canvas.names(ax, at, [str(i) for i in range(len(matrix))], "x")
            canvas.names(ax, at, [str(i) for i in range(len(matrix))], "y")
        for i, j in _largest(matrix, 10):
            text = f"{label}: {i} taken for {j} in {100 * matrix[i, j]:.1f} %"
            canvas.point(ax, j + 0.5, i + 0.5, None, text)
    canvas.scale(WIDTH / 2 - 35, 240, BLUE, "0", "100 % of the label", most=0.9)
