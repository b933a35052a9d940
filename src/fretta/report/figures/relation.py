"""The feature relation graph |Z̃ᵀZ̃| on clean and on shifted images, as in figure 1 of the paper."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..palette import RED
from .base import WIDTH, Figure, Value, plain, stem
from .canvas import Canvas
from .maps import even


def build(analysis: dict[str, Any]) -> Figure | None:
    found = analysis.get("relation")
    if not found:
        return None
    clean, shifted = (np.asarray(found[k], dtype=float) for k in ("clean", "shifted"))
    size, (before, after) = len(clean), found["nrs"]
    target = f"{plain(found['target']['corruption'])} {found['target']['severity']:g}"
    rows: list[list[Value]] = [
        ["clean", found["images"][0], _mean(clean), _high(clean), round(before, 4)],
        [target, found["images"][1], _mean(shifted), _high(shifted), round(after, 4)],
    ]
    drawn = f"{size} of its {found['of']} features" if size < found["of"] else f"{size} features"
    verb = "more" if after > before else "less"
    return Figure(
        name=stem("relation", analysis),
        title=f"Feature relation graph: {plain(analysis['data']['name'])}",
        caption=(
            f"|Z̃ᵀZ̃| between {drawn} of the source model ({plain(analysis['model']['spec'])}) on"
            f" {found['images'][0]} clean images of {plain(analysis['data']['name'])} and on the"
            f" same number under {target}. Darker: two features say the same. Features are ordered"
            " by likeness on the clean images, and in the same order on the right."
        ),
        alt=(
            f"The features are {verb} alike under {target}: normalized redundancy"
            f" {before:.3f} on clean images, {after:.3f} on shifted ones."
        ),
        group="paper",
        header=["images", "number", "mean |Z̃ᵀZ̃|", "share above 0.8 %", "NRS, all features"],
        rows=rows,
        series=[],
        paint=lambda canvas: _paint(canvas, clean, shifted, target, (before, after)),
        height=250,
    )


def _off(graph: np.ndarray) -> np.ndarray:
    return graph[~np.eye(len(graph), dtype=bool)]


def _mean(graph: np.ndarray) -> float:
    return round(float(_off(graph).mean()), 4)


def _high(graph: np.ndarray) -> float:
    return round(100 * float((_off(graph) > 0.8).mean()), 2)


def _paint(
    canvas: Canvas,
    clean: np.ndarray,
    shifted: np.ndarray,
    target: str,
    scores: tuple[float, float],
) -> None:
    side = even((WIDTH - 28) / 2, len(clean))
    for left, graph, name, score in (
        (8.0, clean, "clean", scores[0]),
        (WIDTH / 2 + 8, shifted, target, scores[1]),
    ):
        ax = canvas.axes(left, 24, side, side, f"{name}: NRS {score:.3f}")
        canvas.blank(ax)
        canvas.cells(ax, graph**2, RED)  # squared: near 1 the eye tells shades apart
    canvas.scale(WIDTH / 2 - 60, 236, RED, "0", "1  (shade ∝ square)")
