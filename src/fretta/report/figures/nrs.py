"""Redundancy before and after, domain by domain."""

from __future__ import annotations

import numpy as np

from ..palette import style
from .base import WIDTH, Figure, Value, plain
from .canvas import Canvas
from .panels import Panel

MOST = 12
BEFORE = "source"  # what every run measures first: the model as it came


def scores(panel: Panel, label: str, key: str) -> dict[str, float]:
    """Domain -> NRS of its last batch, mean over seeds; domains without one are left out."""
    found: dict[str, list[float]] = {}
    for record in panel.runs[label]:
        for row in record.rows:
            if row.get(key) is not None:
                found.setdefault(str(row["domain"]), []).append(float(row[key]))
    return {domain: float(np.mean(values)) for domain, values in found.items()}


def build(panel: Panel) -> Figure | None:
    after = {
        label: scores(panel, label, "nrs_after") for label in panel.chosen(MOST) if label != BEFORE
    }
    after = {label: found for label, found in after.items() if found}
    if not after:
        return None
    first = next(iter(after))
    lines = {BEFORE: scores(panel, first, "nrs_before"), **after}
    domains = list(lines[BEFORE])
    rows: list[list[Value]] = [
        [d, *(None if d not in line else round(line[d], 4) for line in lines.values())]
        for d in domains
    ]
    means = {k: float(np.mean(list(line.values()))) for k, line in lines.items()}
    lower = [k for k in after if means[k] < means[BEFORE]]
    least = min(after, key=lambda k: means[k])
    return Figure(
        name=f"nrs-{panel.name}",
        title=f"Redundancy before and after: {panel.title}",
        caption=(
            "Normalized redundancy score of the features (0: none shares anything with another,"
            " 1: all are copies) of the last batch of each domain, under the source model and as"
            f" adapted by then, on {panel.about()}.{panel.left_out(MOST)}"
        ),
        alt=(
            f"{len(lower)} of {len(after)} methods lower the mean score of the source model,"
            f" {means[BEFORE]:.3f}; {plain(least)} has the lowest, {means[least]:.3f}."
        ),
        group="runs",
        header=["domain", *(plain(k) for k in lines)],
        rows=rows,
        series=list(lines),
        paint=lambda canvas: _paint(canvas, domains, lines),
        height=306,
    )


def _paint(canvas: Canvas, domains: list[str], lines: dict[str, dict[str, float]]) -> None:
    ax = canvas.axes(42, 28, WIDTH - 42 - 104, 190)
    canvas.words(ax, y="normalized redundancy score")
    values = [v for line in lines.values() for v in line.values()]
    room = 0.08 * max(max(values) - min(values), 0.01)
    ax.set_ylim(max(min(values) - room, 0), min(max(values) + room, 1))
    ax.set_xlim(-0.4, len(domains) - 0.6 if len(domains) > 1 else 0.4)
    for number, (label, line) in enumerate(lines.items()):
        y = [line.get(d) for d in domains]
        canvas.line(ax, range(len(domains)), y, style(label), number, 1.3, markers=True)
        for x, (domain, value) in enumerate(zip(domains, y, strict=True)):
            if value is not None:
                canvas.point(ax, x, value, number, f"{label}, {domain}: NRS {value:.3f}")
    step = -(-len(domains) // 20)
    canvas.names(ax, list(range(len(domains)))[::step], domains[::step], slant=50)
    means = {k: float(np.mean(list(line.values()))) for k, line in lines.items()}
    numbers = {label: n for n, label in enumerate(lines)}
    ranked = {k: numbers[k] for k in sorted(means, key=lambda k: means[k])}
    canvas.legend(WIDTH - 96, 12, ranked, {k: f"{m:.3f}" for k, m in means.items()}, "mean")
