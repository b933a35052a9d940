"""health.jsonl as a few points per curve, and the curves as small pictures (SVG)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

POINTS = 240  # per curve, however long the run
EVENTS = 50  # of the guard that are listed
WIDTH, HEIGHT, PAD = 300, 110, 6

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


def picture(curves: Sequence[Curve], marks: Sequence[float], title: str) -> str:
    """One or two curves on one scale; the second is the reference. Numbers only: nothing to
    escape but the title, which is ours."""
    values = [v for curve in curves for v in curve if v is not None]
    low, high = min(values), max(values)
    span = high - low or max(abs(high), 1e-9)
    middle = 0.5 if high == low else 0.0

    def xy(i: int, n: int, value: float) -> str:
        x = PAD + (WIDTH - 2 * PAD) * (i / max(1, n - 1))
        y = HEIGHT - PAD - (HEIGHT - 2 * PAD) * ((value - low) / span + middle)
        return f"{x:.1f},{y:.1f}"

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}: from'
        f' {short(curves[0][0])} to {short(curves[0][-1])}" preserveAspectRatio="none">'
    ]
    for mark in marks:
        x = PAD + (WIDTH - 2 * PAD) * mark
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{HEIGHT}"/>')
    for curve, kind in reversed(list(zip(curves, ("line", "reference"), strict=False))):
        points = [xy(i, len(curve), v) for i, v in enumerate(curve) if v is not None]
        if len(points) == 1:
            left, top = points[0].split(",")
            parts.append(f'<circle class="{kind}" cx="{left}" cy="{top}" r="2.5"/>')
        elif points:
            parts.append(f'<polyline class="{kind}" points="{" ".join(points)}"/>')
    return "".join([*parts, "</svg>"])


def short(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.3g}"
