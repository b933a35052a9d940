"""health.jsonl as a few points per curve, and the curves as small pictures (SVG)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

POINTS = 240  # per curve, however long the run
EVENTS = 50  # of the guard that are listed
WIDTH, HEIGHT = 300, 150
LEFT, RIGHT, TOP, BOTTOM = 46, 8, 22, 24  # room for the axes

Curve = list[float | None]


@dataclass
class Watched:
    """What the health records of a run say."""

    batches: int = 0
    curves: dict[str, Curve] = field(default_factory=dict)
    events: list[tuple[int, str, str]] = field(default_factory=list)  # (batch, action, reason)
    actions: dict[str, int] = field(default_factory=dict)
    marks: list[float] = field(default_factory=list)  # where events lie, 0 to 1


def read_health(path: Path, names: Sequence[str]) -> Watched:
    """Means over equal stretches of the run; two passes, so memory does not grow with it."""
    with path.open("rb") as file:
        total = sum(1 for _ in file)
    seen = Watched(total)
    bins = min(POINTS, total)
    sums = {name: [0.0] * bins for name in names}
    counts = {name: [0] * bins for name in names}
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file):
            record = json.loads(line)
            place = number * bins // total
            for name in names:
                value = record.get(name)
                if value is not None:
                    sums[name][place] += value
                    counts[name][place] += 1
            action = record.get("action")
            if action:
                seen.actions[action] = seen.actions.get(action, 0) + 1
                seen.marks.append(number / max(1, total - 1))
                if len(seen.events) < EVENTS:
                    seen.events.append((int(record["batch"]), action, str(record["reason"])))
    for name in names:
        curve = [s / n if n else None for s, n in zip(sums[name], counts[name], strict=True)]
        if any(value is not None for value in curve):
            seen.curves[name] = curve
    seen.marks = sorted({round(mark, 3) for mark in seen.marks})
    return seen


def picture(
    curves: Sequence[Curve], marks: Sequence[float], title: str, unit: str, batches: int
) -> str:
    """One or two curves over the batches; the second is the reference. Numbers only: nothing to
    escape but the title and the unit, which are ours."""
    values = [v for curve in curves for v in curve if v is not None]
    low, high = min(values), max(values)
    if low == high:
        low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
    y_ticks = ticks(low, high)
    low, high = y_ticks[0], y_ticks[-1]
    last = max(batches - 1, 1)

    def across(share: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * share

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)

    base = HEIGHT - BOTTOM
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}: from'
        f' {short(curves[0][0])} to {short(curves[0][-1])}">'
        f'<text x="{LEFT}" y="{TOP - 8}">{unit}</text>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">batch</text>'
    ]
    for value in y_ticks:
        y = f"{up(value):.1f}"
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
            f'<text x="{LEFT - 5}" y="{up(value) + 3.5:.1f}" text-anchor="end">{value:g}</text>'
        )
    for number in ticks(0, last, whole=True):
        x = f"{across(number / last):.1f}"
        parts.append(f'<line class="axis" x1="{x}" x2="{x}" y1="{base}" y2="{base + 4}"/>')
        if across(number / last) < WIDTH - RIGHT - 45:  # where "batch" stands
            parts.append(
                f'<text x="{x}" y="{HEIGHT - 4}" text-anchor="middle">{int(number):,}</text>'
            )
    parts.append(
        f'<polyline class="axis" points="{LEFT},{TOP} {LEFT},{base} {WIDTH - RIGHT},{base}"/>'
    )
    for mark in marks:
        x = f"{across(mark):.1f}"
        parts.append(f'<line class="mark" x1="{x}" x2="{x}" y1="{TOP}" y2="{base}"/>')
    for curve, kind in reversed(list(zip(curves, ("line", "reference"), strict=False))):
        points = [
            (across(i / max(1, len(curve) - 1)), up(v))
            for i, v in enumerate(curve)
            if v is not None
        ]
        if len(points) == 1:
            parts.append(
                f'<circle class="{kind}" cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="2.5"/>'
            )
        elif points:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            parts.append(f'<polyline class="{kind}" points="{path}"/>')
    return "".join([*parts, "</svg>"])


def ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """About four round numbers around `low` to `high`; `whole` ones lie between them."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    if whole:
        step = max(step, 1.0)
        return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def short(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.3g}"
