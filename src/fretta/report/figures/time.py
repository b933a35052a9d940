"""Accuracy over time, method by method, with the borders of the domains."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data import ReportData
from ..palette import style
from .base import WIDTH, Figure, Value, plain
from .canvas import Canvas
from .panels import Panel

MOST = 12  # methods
WINDOW = 5  # batches


@dataclass(frozen=True)
class Span:
    """Batches start … stop-1 come from one domain."""

    domain: str
    start: int
    stop: int


def spans_of(domains: list[str]) -> list[Span]:
    """Runs of equal names; one nameless span where domains are mixed and borders mean nothing."""
    edges = [i for i in range(1, len(domains)) if domains[i] != domains[i - 1]]
    if len(edges) >= 3 * max(len(set(domains)), 1):
        return [Span("", 0, len(domains))]
    borders = [0, *edges, len(domains)]
    return [Span(domains[a], a, b) for a, b in pairwise(borders) if b > a]


def rolling(
    right: list[int], images: list[int], spans: list[Span], window: int = WINDOW
) -> NDArray[np.float64]:
    """Accuracy over `window` batches around each, by images, never across a border."""
    result = np.full(len(right), np.nan)
    for span in spans:
        r = np.concatenate([[0], np.cumsum(right[span.start : span.stop])])
        n = np.concatenate([[0], np.cumsum(images[span.start : span.stop])])
        here = np.arange(span.stop - span.start)
        low = np.clip(here - window // 2, 0, None)
        high = np.clip(here + window // 2 + 1, None, len(here))
        result[span.start : span.stop] = (r[high] - r[low]) / np.maximum(n[high] - n[low], 1)
    return result


def build(panel: Panel, data: ReportData) -> Figure | None:
    """One line per method, of its first seed."""
    found: dict[str, dict[str, Any]] = {}
    for label in panel.chosen(MOST):
        details = data.details(panel.runs[label][0].key)
        batches = (details or {}).get("batches")
        if batches and len(batches["right"]) > 1:
            found[label] = batches
    if not found:
        return None
    first = next(iter(found.values()))
    found = {k: b for k, b in found.items() if b["domain"] == first["domain"]}
    spans = spans_of(first["domain"])
    window = max(1, min(WINDOW, len(first["right"]) // (3 * len(spans))))
    lines = {k: rolling(b["right"], b["images"], spans, window) for k, b in found.items()}
    means = {
        k: [sum(b["right"][s.start : s.stop]) / sum(b["images"][s.start : s.stop]) for s in spans]
        for k, b in found.items()
    }
    rows: list[list[Value]] = [
        [s.domain or "all", s.stop - s.start, *(round(100 * means[k][i], 2) for k in found)]
        for i, s in enumerate(spans)
    ]
    best = max(found, key=panel.accuracy)
    return Figure(
        name=f"time-{panel.name}",
        title=f"Accuracy over time: {panel.title}",
        caption=(
            f"Accuracy of the predictions made on the way, over {window} batches around each, on"
            f" {panel.about()}; the first seed is drawn. Vertical lines are borders of domains:"
            " a method that forgets or collapses falls and stays low."
            f"{panel.left_out(MOST)}"
        ),
        alt=(
            f"Accuracy along the stream for {len(found)} methods over {len(spans)} domains; the"
            f" best on average is {plain(best)} at {100 * panel.accuracy(best):.1f} %."
        ),
        group="runs",
        header=["domain", "batches", *(f"{plain(k)} %" for k in found)],
        rows=rows,
        series=list(found),
        paint=lambda canvas: _paint(canvas, spans, lines, means),
        height=306,
    )


def _paint(
    canvas: Canvas,
    spans: list[Span],
    lines: dict[str, NDArray[np.float64]],
    means: dict[str, list[float]],
) -> None:
    ax = canvas.axes(40, 28, WIDTH - 40 - 104, 190)
    canvas.words(ax, y="accuracy %")
    total = spans[-1].stop
    low = min(float(np.nanmin(line)) for line in lines.values())
    ax.set_xlim(0, total)
    ax.set_ylim(max(0, np.floor(10 * low - 0.3) * 10), 101)
    for number, (label, line) in enumerate(lines.items()):
        for span in spans:
            at = np.arange(span.start, span.stop) + 0.5
            values = 100 * line[span.start : span.stop]
            if len(at) == 1:  # one batch is no line: as wide as the batch
                at, values = np.array([at[0] - 0.4, at[0] + 0.4]), np.repeat(values, 2)
            heavy = label in ("source", "s-fret", "g-fret")
            canvas.line(ax, at, values, style(label), number, 1.7 if heavy else 1.1)
    domain_axis(canvas, ax, spans)
    for number, label in enumerate(lines):
        for span, mean in zip(spans, means[label], strict=True):
            middle = (span.start + span.stop) / 2
            where = f", {span.domain}" if span.domain else ""
            canvas.point(ax, middle, 100 * mean, number, f"{label}{where}: {100 * mean:.1f} %")
    counts = [span.stop - span.start for span in spans]
    overall = {k: float(np.average(v, weights=counts)) for k, v in means.items()}
    numbers = {label: n for n, label in enumerate(lines)}
    ranked = {k: numbers[k] for k in sorted(overall, key=lambda k: -overall[k])}
    notes = {k: f"{100 * v:.1f}" for k, v in overall.items()}
    canvas.legend(WIDTH - 96, 12, ranked, notes, "mean %")


def domain_axis(canvas: Canvas, ax: Any, spans: list[Span]) -> None:
    """Borders, and the domains' names below; batches where there is one domain only."""
    from ..palette import INK

    if len(spans) == 1:
        named = f"batch ({plain(spans[0].domain)})" if spans[0].domain else "batch"
        canvas.words(ax, x=named)
        return
    for span in spans[1:]:
        ax.axvline(span.start, color=INK, alpha=0.25, linewidth=0.6)
    step = -(-len(spans) // 20)  # at most 20 names
    shown = spans[::step]
    canvas.names(ax, [(s.start + s.stop) / 2 for s in shown], [s.domain for s in shown], slant=50)
