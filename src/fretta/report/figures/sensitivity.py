"""Accuracy of G-FRET over λ × lr and K1 × K2, as in figures 4 and 6 of the paper. From records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...experiment.records import Record, digest
from ..palette import BLUE, INK
from .base import WIDTH, Figure, Value, plain, slug
from .canvas import Canvas
from .panels import CONDITIONS

GRIDS = (("lam", "lr"), ("k1", "k2"))
FLAT = 0.05  # points: less than what is shown is no difference
NAMES = {"lam": "λ", "lr": "learning rate", "k1": "K1", "k2": "K2"}


class Grid:
    """Mean accuracy over seeds for each pair of values; NaN where no run is done."""

    def __init__(self, pair: tuple[str, str], runs: list[Record]) -> None:
        self.pair, self.case = pair, str(runs[0].tags.get("case") or runs[0].run["data"]["name"])
        cells: dict[tuple[float, float], list[float]] = {}
        for r in runs:
            at = tuple(float(r.run["hyperparameters"][k]) for k in pair)
            cells.setdefault((at[0], at[1]), []).append(r.overall["mean_over_domains"])
        self.rows = sorted({a for a, _ in cells})
        self.columns = sorted({b for _, b in cells})
        self.values: NDArray[np.float64] = np.full((len(self.rows), len(self.columns)), np.nan)
        for (a, b), found in cells.items():
            self.values[self.rows.index(a), self.columns.index(b)] = 100 * np.mean(found)
        self.seeds = max(len(found) for found in cells.values())
        self.key = digest([pair, runs[0].run["data_hash"], runs[0].run["order_options"]])[:4]


def grids(records: Iterable[Record]) -> list[Grid]:
    """All grids of at least 2 × 2: runs of G-FRET that differ in these two and the seed alone."""
    piles: dict[str, list[Record]] = {}
    pairs: dict[str, tuple[str, str]] = {}
    for r in records:
        given = r.run.get("hyperparameters", {})
        if r.status != "done" or r.run["method"] != "g-fret":
            continue
        if str(r.tags.get("suite") or "").endswith("/tune"):
            continue
        for pair in GRIDS:
            if set(pair) <= given.keys() and all(_number(given[k]) for k in pair):
                rest = {k: v for k, v in given.items() if k not in pair}
                conditions = [r.run.get(k) for k in CONDITIONS]
                key = digest([pair, rest, conditions, r.run.get("adapter")])
                piles.setdefault(key, []).append(r)
                pairs[key] = pair
    found = [Grid(pairs[key], runs) for key, runs in piles.items()]
    return [g for g in found if len(g.rows) > 1 and len(g.columns) > 1]


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def build(records: list[Record]) -> list[Figure]:
    return [_figure(grid) for grid in grids(records)]


def _figure(grid: Grid) -> Figure:
    a, b = (NAMES[k] for k in grid.pair)
    rows: list[list[Value]] = [
        [x, y, None if not np.isfinite(v) else round(float(v), 2)]
        for x, line in zip(grid.rows, grid.values, strict=True)
        for y, v in zip(grid.columns, line, strict=True)
    ]
    i, j = np.unravel_index(int(np.nanargmax(grid.values)), grid.values.shape)
    low, high = float(np.nanmin(grid.values)), float(np.nanmax(grid.values))
    best = f"{a} = {grid.rows[i]:g}, {b} = {grid.columns[j]:g}"
    framed = f"the best is framed ({best})" if high - low >= FLAT else "all are the same"
    return Figure(
        name=f"sensitivity-{slug(*grid.pair, grid.case)[:40]}-{grid.key}",
        title=f"Sensitivity of G-FRET to {a} and {b}: {plain(grid.case)}",
        caption=(
            f"Mean accuracy over domains in % for each {a} and {b}, {plain(grid.case)},"
            f" {grid.seeds} seed{'s' if grid.seeds > 1 else ''}; {framed}."
            " Choosing it here uses target labels: it shows how much the choice matters, not what"
            " can be expected."
        ),
        alt=f"Accuracy lies between {low:.1f} % and {high:.1f} %; best at {best}.",
        group="paper",
        header=[a, b, "accuracy %"],
        rows=rows,
        series=[],
        paint=lambda canvas: _paint(canvas, grid, (int(i), int(j)), low, high),
        height=28 + 22 * len(grid.rows) + 40,
    )


def _paint(canvas: Canvas, grid: Grid, best: tuple[int, int], low: float, high: float) -> None:
    a, b = (NAMES[k] for k in grid.pair)
    width, height = WIDTH - 52 - 8, 22.0 * len(grid.rows)
    ax = canvas.axes(52, 28, width, height)
    canvas.blank(ax)
    span = max(high - low, FLAT)
    canvas.cells(ax, 0.06 + 0.94 * (grid.values - low) / span, BLUE, most=0.6, gap=1)
    for (row, column), value in np.ndenumerate(grid.values):
        here = (row, column) == best and high - low >= FLAT
        text = "–" if not np.isfinite(value) else f"{value:.1f}"
        weight = "bold" if here else "normal"
        canvas.text(ax, column + 0.5, row + 0.5, text, ha="center", fontweight=weight)
        where = f"{a} {grid.rows[row]:g}, {b} {grid.columns[column]:g}: {value:.2f} %"
        canvas.point(ax, column + 0.5, row + 0.5, None, where)
    if high - low >= FLAT:
        x, y = best[1], best[0]
        frame = ([x, x + 1, x + 1, x, x], [y, y, y + 1, y + 1, y])
        ax.plot(*frame, color=INK, linewidth=1.2, clip_on=False)
    canvas.names(ax, [i + 0.5 for i in range(len(grid.rows))], [f"{v:g}" for v in grid.rows], "y")
    shown = [f"{v:g}" for v in grid.columns]
    canvas.names(ax, [i + 0.5 for i in range(len(shown))], shown, "x")
    ax.set_xlabel(b, fontsize=9.5, color=INK, labelpad=4)
    ax.set_title(f"{a} (rows)", loc="left", fontsize=9.5, color=INK, pad=6, x=-44 / width)
