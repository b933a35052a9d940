"""Is a confidence of 80 % right in 80 % of the cases? The reliability diagram."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..data import ReportData
from ..palette import INK, style
from .base import WIDTH, Figure, Value, plain
from .canvas import Canvas
from .panels import Panel, summed

MOST = 7
LEAST = 20  # images in a bin that is drawn


def bins(panel: Panel, data: ReportData, label: str) -> NDArray[np.float64] | None:
    """(3, bins): images, mean confidence, accuracy; over all domains and seeds."""
    parts = [
        summed(data, panel.runs[label], k) for k in ("bin_count", "bin_confidence", "bin_right")
    ]
    if not all(parts) or not parts[0][0].sum():
        return None
    n, confidence, right = (p[0] for p in parts)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([n, confidence / n, right / n])


def error(found: NDArray[np.float64]) -> float:
    """ECE: the gap between confidence and accuracy, weighted by images."""
    n, confidence, right = found
    there = n > 0
    return float((n[there] * np.abs(confidence[there] - right[there])).sum() / n.sum())


def build(panel: Panel, data: ReportData) -> Figure | None:
    found = {k: b for k in panel.chosen(MOST) if (b := bins(panel, data, k)) is not None}
    if not found:
        return None
    errors = {k: error(b) for k, b in found.items()}
    rows: list[list[Value]] = [
        [k, int(n), round(100 * float(c), 2), round(100 * float(a), 2)]
        for k, b in found.items()
        for n, c, a in b.T
        if n
    ]
    best = min(errors, key=lambda k: errors[k])
    return Figure(
        name=f"calibration-{panel.name}",
        title=f"Calibration: {panel.title}",
        caption=(
            f"Accuracy of predictions by their confidence, on {panel.about()}. On the diagonal,"
            " confidence is honest; below it, the model is too sure. The number at a name is the"
            f" expected calibration error over all domains; bins of fewer than {LEAST} images are"
            f" not drawn.{panel.left_out(MOST)}"
        ),
        alt="Expected calibration error: "
        + ", ".join(f"{plain(k)} {100 * e:.1f} %" for k, e in errors.items())
        + f". Best calibrated: {plain(best)}.",
        group="runs",
        header=["method", "images", "confidence %", "accuracy %"],
        rows=rows,
        series=list(found),
        paint=lambda canvas: _paint(canvas, found, errors),
        height=280,
    )


def _paint(canvas: Canvas, found: dict[str, NDArray[np.float64]], errors: dict[str, float]) -> None:
    ax = canvas.axes(34, 28, WIDTH - 34 - 108, 205)
    canvas.words(ax, x="confidence %", y="accuracy %")
    lows = [100 * float(b[1][b[0] >= LEAST].min(initial=1)) for b in found.values()]
    start = min(10 * int(min(lows) // 10), 90)
    ax.set_xlim(start, 100)
    ax.set_ylim(0, 101)
    ax.plot([0, 100], [0, 100], color=INK, linewidth=0.8, alpha=0.5)
    for number, (label, b) in enumerate(found.items()):
        enough = b[0] >= LEAST
        x, y = 100 * b[1][enough], 100 * b[2][enough]
        canvas.line(ax, x, y, style(label), number, 1.5, markers=True)
        for n, c, a in zip(b[0][enough], x, y, strict=True):
            text = f"{label}: {a:.0f} % right at {c:.0f} % confidence ({int(n):,} images)"
            canvas.point(ax, float(c), float(a), number, text)
    numbers = {label: n for n, label in enumerate(found)}
    ranked = {k: numbers[k] for k in sorted(errors, key=lambda k: errors[k])}
    canvas.legend(WIDTH - 96, 12, ranked, {k: f"{100 * e:.1f}" for k, e in errors.items()}, "ECE %")
