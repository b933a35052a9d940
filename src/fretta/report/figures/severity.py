"""Redundancy and accuracy against severity, as at the bottom of figure 1 of the paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..palette import INK, style
from .base import WIDTH, Figure, Value, plain, stem
from .canvas import Canvas

Curve = dict[float, float]  # severity -> value
Curves = dict[str, Curve]  # series -> curve


def by_method(analysis: dict[str, Any], value: str) -> Curves:
    """Mean over corruptions, per method and severity."""
    return {
        m: _curve([p for p in analysis["points"] if p["method"] == m], value)
        for m in analysis["methods"]
    }


def by_corruption(analysis: dict[str, Any], value: str, method: str = "source") -> Curves:
    """One curve per corruption under one method; the clean data is where they all begin."""
    points = [p for p in analysis["points"] if p["method"] == method]
    clean = [p for p in points if p["severity"] == 0]
    return {
        c: _curve(clean + [p for p in points if p["corruption"] == c], value)
        for c in analysis["corruptions"]
    }


def beyond(nrs: Curves) -> Curves:
    """What methods that learn add to the statistics of the batch alone, which `bn` uses."""
    base = nrs["bn"]
    return {
        name: {s: v - base[s] for s, v in line.items() if s in base}
        for name, line in nrs.items()
        if name not in ("source", "bn")
    } or {"bn": dict.fromkeys(base, 0.0)}


def _curve(points: list[dict[str, Any]], value: str) -> Curve:
    there = [p for p in points if p.get(value) is not None]
    return {
        s: float(np.mean([p[value] for p in there if p["severity"] == s]))
        for s in sorted({p["severity"] for p in there})
    }


def build(analysis: dict[str, Any]) -> list[Figure]:
    """By method, and for the source model by corruption."""
    found = [_figure(analysis, by_method, "method", "methods")]
    if "source" in analysis["methods"]:
        found.append(_figure(analysis, by_corruption, "corruption", "corruptions"))
    return [f for f in found if f is not None]


def _figure(
    analysis: dict[str, Any],
    curves: Callable[[dict[str, Any], str], Curves],
    kind: str,
    plural: str,
) -> Figure | None:
    nrs, accuracy = curves(analysis, "nrs"), curves(analysis, "accuracy")
    nrs = {k: line for k, line in nrs.items() if line}
    if not nrs:
        return None
    d = int(analysis.get("features") or 0)
    rows: list[list[Value]] = [
        [k, s, round(v, 4), round(v * d * (d - 1), 1), round(100 * accuracy[k][s], 2)]
        for k, line in nrs.items()
        for s, v in line.items()
    ]
    name = plain(analysis["data"]["name"])
    what = (
        f"mean over {', '.join(map(plain, analysis['corruptions']))}; each severity is one"
        f" {plain(analysis['order'])} stream that every method starts afresh"
        if kind == "method"
        else "the source model, one line per corruption"
    )
    return Figure(
        name=stem(f"severity-{plural}", analysis),
        title=f"Redundancy against severity, by {kind}: {name}",
        caption=(
            f"Normalized redundancy score and accuracy on {name},"
            f" {plain(analysis['model']['spec'])}: {what}. {analysis['limit'] or 'all'} images per"
            f" corruption in batches of {analysis['batch_size']}; severity 0 is the clean data."
            " The paper claims that redundancy grows with severity and that both FRET methods"
            " reduce it while accuracy rises."
        ),
        alt=" ".join(_told(k, line, accuracy[k]) for k, line in nrs.items()),
        group="paper",
        header=[kind, "severity", "NRS", "R_e", "accuracy %"],
        rows=rows,
        series=list(nrs),
        paint=lambda canvas: _paint(canvas, nrs, accuracy),
        height=520 if "bn" in nrs else 400,
    )


def _told(name: str, nrs: Curve, accuracy: Curve) -> str:
    first, last = min(nrs), max(nrs)
    return (
        f"{plain(name)}: NRS {nrs[first]:.3f} at severity {first:g}, {nrs[last]:.3f} at {last:g};"
        f" accuracy {100 * accuracy[first]:.1f} % and {100 * accuracy[last]:.1f} %."
    )


def _paint(canvas: Canvas, nrs: Curves, accuracy: Curves) -> None:
    width = WIDTH - 44 - 98
    upper = canvas.axes(44, 28, width, 150)
    lower = canvas.axes(44, 212, width, 150)
    canvas.words(upper, y="normalized redundancy score")
    canvas.words(lower, y="accuracy %")
    panels = [(upper, nrs, 1.0, ""), (lower, accuracy, 100.0, " %")]
    if "bn" in nrs:
        panels.append((canvas.axes(44, 396, width, 86), beyond(nrs), 1000.0, " / 1000"))
        canvas.words(panels[-1][0], y="NRS minus bn's, in thousandths: what learning adds")
        panels[-1][0].axhline(0, color=INK, linewidth=0.8, alpha=0.6)
    canvas.words(panels[-1][0], x="severity (0: clean)")
    levels = sorted({s for line in nrs.values() for s in line})
    numbers = {name: n for n, name in enumerate(nrs)}
    for ax, curves, factor, unit in panels:
        values = [factor * v for line in curves.values() for v in line.values()]
        values += [0.0] if factor == 1000 else []
        room = 0.07 * max(max(values) - min(values), 0.01)
        ax.set_ylim(min(values) - room, max(values) + room)
        ax.set_xlim(levels[0] - 0.15, levels[-1] + 0.15)
        ax.set_xticks(levels, [f"{s:g}" for s in levels])
        for name, line in curves.items():
            number = numbers[name]
            y = [factor * v for v in line.values()]
            canvas.line(ax, list(line), y, style(name), number, 1.6, markers=True)
            for s, v in zip(line, y, strict=True):
                shown = f"{v:.1f}{unit}" if unit else f"NRS {v:.4f}"
                canvas.point(ax, s, v, number, f"{name}, severity {s:g}: {shown}")
        ends = [
            (factor * line[max(line)] if line else None, name, numbers[name])
            for name, line in curves.items()
        ]
        canvas.labels(ax, ends)
