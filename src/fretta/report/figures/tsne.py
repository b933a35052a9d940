"""Features on a plane before and after adaptation, as in figure 5 of the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..palette import COLORS, GRAY, MARKERS
from .base import WIDTH, Figure, Value, plain, short_names, stem
from .canvas import Canvas

SIDE = (WIDTH - 16) / 2
MOST = 6


def build(analysis: dict[str, Any]) -> Figure | None:
    panels = analysis["panels"][:MOST]
    if not panels:
        return None
    labels = np.asarray(analysis["labels"])
    short = short_names(map(str, analysis["classes"]), 12)
    classes = [short[str(c)] for c in analysis["classes"]]
    rows: list[list[Value]] = [
        [p["method"], _rounded(p["silhouette"]), round(p["nrs"], 4), round(100 * p["accuracy"], 2)]
        for p in panels
    ]
    told = "; ".join(f"{plain(p['method'])} {_shown(p['silhouette'])}" for p in panels)
    lines = -(-len(panels) // 2)
    return Figure(
        name=stem("tsne", analysis),
        title=f"t-SNE of the features: {plain(analysis['data']['name'])}",
        caption=(
            f"Features of the same {len(labels)} images of {plain(analysis['domain'])}"
            f" ({plain(analysis['data']['name'])}, {plain(analysis['model']['spec'])}) under the"
            " source model and after each method adapted along the whole stream; colors are the"
            " labels, which no method sees. t-SNE distorts distances: the silhouette (-1 to 1,"
            " cosine, in feature space) says how well classes are apart."
        ),
        alt=f"Silhouette of the classes: {told}.",
        group="paper",
        header=["method", "silhouette", "NRS", "accuracy %"],
        rows=rows,
        series=[],
        paint=lambda canvas: _paint(canvas, panels, labels, classes),
        height=6 + lines * (SIDE + 26),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _paint(
    canvas: Canvas, panels: list[dict[str, Any]], labels: NDArray[Any], classes: list[str]
) -> None:
    short = short_names([panel["method"] for panel in panels], 16)
    for number, panel in enumerate(panels):
        row, column = divmod(number, 2)
        title = (
            f"{short[panel['method']]}: silhouette {_shown(panel['silhouette'])},"
            f" {100 * panel['accuracy']:.0f} %"
        )
        ax = canvas.axes(2 + column * (SIDE + 12), 22 + row * (SIDE + 26), SIDE, SIDE, title)
        canvas.blank(ax)
        ax.set_xlim(-1.08, 1.08)
        ax.set_ylim(-1.08, 1.08)
        xy = np.asarray(panel["xy"], dtype=float)
        for which in np.unique(labels):
            mine = labels == which
            # six colors, and every further six classes another marker
            shape = MARKERS[int(which) // len(COLORS) % len(MARKERS)]
            ax.plot(
                *xy[mine].T,
                linestyle="",
                marker=shape,
                color=COLORS[int(which) % len(COLORS)],
                markersize=3.4,
                markeredgewidth=0,
                alpha=0.85,
            )
        if len(classes) <= 12:
            there = np.unique(labels)
            middles = [np.median(xy[labels == which], axis=0) for which in there]
            names = [classes[int(which)] for which in there]
            pairs = zip(middles, names, strict=True)
            canvas.names_at(ax, [(float(m[0]), float(m[1]), name) for m, name in pairs])
        ax.plot(*_FRAME, color=GRAY, linewidth=0.5, alpha=0.5, clip_on=False)


_FRAME = ([-1.08, 1.08, 1.08, -1.08, -1.08], [-1.08, -1.08, 1.08, 1.08, -1.08])
