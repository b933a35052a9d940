"""Accuracy over grids of hyper-parameters: figures 4 and 6 of the paper."""

from __future__ import annotations

from typing import Any

from pandas import DataFrame

from ...experiment.records import Record, digest
from ...experiment.results import setup_of
from ..data import ReportData
from ..palette import BLUE, INK
from ..table import slug
from .draw import SMALL, Canvas, Figure, plain

GRIDS = {("lam", "lr"): ("λ", "learning rate"), ("k1", "k2"): ("K1", "K2")}
FLAT = 0.05  # points: less than what is shown is no difference


def sensitivity(data: ReportData) -> list[Figure]:
    """Accuracy of G-FRET over λ × lr and K1 × K2: runs that differ in these and the seed alone."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for r in data.runs:
        given = r.run.get("hyperparameters", {})
        searched = str(r.tags.get("suite") or "").endswith("/tune")
        if r.status != "done" or r.run["method"] != "g-fret" or searched:
            continue
        for pair in GRIDS:
            if all(type(given.get(k)) in (int, float) for k in pair):
                rest = {k: v for k, v in given.items() if k not in pair}
                same = digest([rest, r.run.get("adapter")])
                groups.setdefault((pair, setup_of(r.run), same), []).append(r)
    found = []
    for (pair, setup, _), runs in groups.items():
        points = [
            (*(float(r.run["hyperparameters"][k]) for k in pair), r.overall["mean_over_domains"])
            for r in runs
        ]
        table = DataFrame(points, columns=[*pair, "accuracy"])
        grid = 100 * table.pivot_table(index=pair[0], columns=pair[1], values="accuracy")
        if min(grid.shape) > 1:
            case = str(runs[0].tags.get("case") or runs[0].run["data"]["name"])
            name = f"sensitivity-{slug(*pair, case)[:40]}-{setup[:4]}"
            seeds = len({r.run["seed"] for r in runs})
            found.append(_grid(grid, name, GRIDS[pair], plain(case), seeds))
    return found


def _grid(grid: DataFrame, name: str, titles: tuple[str, str], case: str, seeds: int) -> Figure:
    a, b = titles
    cells = grid.stack()
    low, high, (x, y) = cells.min(), cells.max(), cells.idxmax()
    best, distinct = f"{a} = {x:g}, {b} = {y:g}", cells.max() - cells.min() >= FLAT
    framed = f"the best is framed ({best})" if distinct else "all are the same"

    def paint(canvas: Canvas) -> None:
        from matplotlib.patches import Rectangle

        (ax,) = canvas.axes()
        canvas.heat(ax, 0.06 + 0.94 * (grid.to_numpy() - low) / max(high - low, FLAT), BLUE, 0.6)
        for (i, u), (j, v) in ((p, q) for p in enumerate(grid.index) for q in enumerate(grid)):
            value = grid.loc[u, v]
            text = "–" if value != value else f"{value:.1f}"
            ax.text(j, i, text, ha="center", va="center", fontsize=SMALL)
            canvas.point(ax, j, i, None, f"{a} {u:g}, {b} {v:g}: {value:.2f} %")
            if distinct and (u, v) == (x, y):
                frame = Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=INK)
                ax.add_patch(frame).set_clip_on(False)
        canvas.ticks(ax.xaxis, [f"{v:g}" for v in grid])
        canvas.ticks(ax.yaxis, [f"{u:g}" for u in grid.index])
        ax.set(xlabel=b, ylabel=a)

    table = cells.round(2).reset_index()
    table.columns = [a, b, "accuracy %"]
    return Figure(
        name=name,
        title=f"Sensitivity of G-FRET to {a} and {b}: {case}",
        caption=f"Mean accuracy over domains in % for each {a} and {b}, {case},"
        f" {seeds} seed{'s' * (seeds > 1)}; {framed}. Choosing it here uses target labels: it shows"
        " how much the choice matters, not what can be expected.",
        alt=f"Accuracy lies between {low:.1f} % and {high:.1f} %; best at {best}.",
        numbers=table,
        paint=paint,
        height=60 + 24 * len(grid),
    )
