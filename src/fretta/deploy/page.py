"""Pages that need no other file, from the templates here: for light and dark, wide and narrow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray

MOST_ROWS, MOST_BARS = 50, 15  # classes in a table of numbers, and in one of bars
WIDTH, HEIGHT = 300, 150  # of a chart
LEFT, RIGHT, TOP, BOTTOM = 46, WIDTH - 8, 22, HEIGHT - 24  # its axes
BOX = {"left": LEFT, "right": RIGHT, "top": TOP, "bottom": BOTTOM, "width": WIDTH, "height": HEIGHT}

Curve = NDArray[np.float64]


def render(template: str, package: str = "fretta.deploy", **values: Any) -> str:
    """A template of `package`, or one here. Everything is escaped; bytes that are no text too."""
    places = dict.fromkeys((package, "fretta.deploy"))
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(place, ".") for place in places]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template(template).render(values)
    return text.encode("utf-8", "backslashreplace").decode()


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def class_accuracies(
    names: Sequence[str], images: Sequence[int], right: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """For the macro `accuracies`; the classes with most images first."""
    order = sorted((c for c, n in enumerate(images) if n), key=lambda c: (-images[c], c))
    rows = [
        [names[c], f"{images[c]:,}", *(percent(model[c] / images[c]) for model in right)]
        for c in order[:MOST_ROWS]
    ]
    return {"rows": rows, "more": len(order) - len(rows)}


def predicted_shares(names: Sequence[str], *models: Sequence[int]) -> dict[str, Any]:
    """For the macro `shares`: how often each class is predicted, the most frequent first."""
    shares = [np.array(counts) / max(1, sum(counts)) for counts in models]
    top = np.max(shares, axis=0)
    order = sorted(np.flatnonzero(top).tolist(), key=lambda c: (-top[c], c))
    rows = [
        [names[c], *((percent(s[c]), f"{70 * s[c] / top.max():.1f}") for s in shares)]
        for c in order[:MOST_BARS]
    ]
    return {"rows": rows, "more": len(order) - len(rows)}


def chart(
    curves: Sequence[Curve], marks: Sequence[float], caption: str, unit: str, batches: int
) -> dict[str, Any]:
    """For the macro `chart`: a curve over the batches, its reference if any, marks (0 to 1)."""
    values = np.concatenate(curves)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # rounding is not worth an axis
        low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
    y_ticks = ticks(low, high)
    low, high = y_ticks[0], y_ticks[-1]
    last = max(batches - 1, 1)

    def x(share: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * share, 1)

    def y(value: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * (value - low) / (high - low), 1)

    lines = []
    for curve, kind in zip(curves, ("line", "reference"), strict=False):
        end = max(1, len(curve) - 1)
        lines.append((kind, [(x(i / end), y(curve[i])) for i in np.flatnonzero(curve == curve)]))
    known = curves[0][curves[0] == curves[0]]
    facts = {"first": known[0], "last": known[-1], "lowest": known.min(), "highest": known.max()}
    return {
        **BOX,
        "caption": caption,
        "unit": unit,
        "range": " · ".join(f"{name} {value:.3g}" for name, value in facts.items()),
        "y_ticks": [(y(value), f"{value:g}") for value in y_ticks],
        "x_ticks": [(x(n / last), f"{int(n):,}") for n in ticks(0, last, integers=True)],
        "marks": sorted({x(mark) for mark in marks}),
        "lines": lines[::-1],
    }


def ticks(low: float, high: float, integers: bool = False) -> list[float]:
    """About four round numbers around `low` to `high`; integers lie between them."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    if integers:
        step = max(step, 1.0)
        return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]
