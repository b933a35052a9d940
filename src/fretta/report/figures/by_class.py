"""Figures of any runs: what happens to classes, and how honest confidences are."""

from __future__ import annotations

import numpy as np
from pandas import DataFrame, concat

from ..data import ReportData
from ..palette import BLUE, INK, RED
from .draw import SMALL, Canvas, Figure, plain
from .panel import Panel, Values


def extremes(mean: Values, most: int) -> list[int]:
    """All classes, or the half that lost most and the half that gained most, in order."""
    if len(mean) <= most:
        return list(range(len(mean)))
    ranked = np.argsort(mean, kind="stable")
    return sorted(int(c) for c in [*ranked[: most // 2], *ranked[-(most // 2) :]])


def classes(panel: Panel, data: ReportData) -> Figure | None:
    """Who got worse? The change of each class against the source model."""
    accuracy = {}
    for label in panel.chosen():
        seen, right = (panel.summed(data, label, k) for k in ("class_seen", "class_right"))
        if seen is not None and right is not None:
            accuracy[label] = 100 * np.divide(
                right, seen, np.full(len(seen), np.nan), where=seen > 0
            )
    source = accuracy.pop("source", None)
    if source is None:
        return None
    change = {k: v - source for k, v in accuracy.items() if len(v) == len(source)}
    if not change:
        return None
    names = panel.classes(data, len(source))
    shown = extremes(np.mean([np.nan_to_num(c) for c in change.values()], axis=0), 12)
    table = np.array([values[shown] for values in change.values()])

    def paint(canvas: Canvas) -> None:
        (ax,) = canvas.axes()
        top = max(float(np.nanmax(np.abs(table))), 1e-9)
        canvas.heat(ax, table / top, BLUE, 0.6)
        canvas.heat(ax, -table / top, RED, 0.75)
        for (row, column), value in np.ndenumerate(table):
            text = f"{value:+.0f}" if abs(value) >= 0.95 else f"{value:+.1f}"
            text = "–" if not np.isfinite(value) else "0" if float(text) == 0 else text
            middle = {"ha": "center", "va": "center", "fontsize": SMALL}
            ax.text(column, row, text.replace("-", "−"), **middle)
            label = f"{list(change)[row]}, class {names[shown[column]]}: {value:+.1f} points"
            canvas.point(ax, column, row, None, label)
        ax.xaxis.tick_top()
        canvas.ticks(ax.xaxis, [names[c] for c in shown])
        canvas.ticks(ax.yaxis, list(change))

    worst = min(change, key=lambda k: float(np.nanmin(change[k])))
    which = int(np.nanargmin(change[worst]))
    losing = sum(bool((v < 0).any()) for v in change.values())
    few = "" if len(shown) == len(source) else f" Of {len(source)} classes, the extremes are shown."
    return Figure(
        name=f"classes-{panel.name}",
        title=f"Change per class against source: {panel.title}",
        caption="Percentage points of accuracy that each class gains (blue) or loses (red) against"
        " the source model, over all domains. A mean can rise while a class is given up."
        f"{few} On {panel.about()}",
        alt=f"The least gain is {change[worst][which]:+.1f} points, of class {names[which]} under"
        f" {plain(worst)}; {losing} of {len(change)} methods lost on some class.",
        numbers=DataFrame(
            {
                "class": names,
                "source %": source.round(2),
                **{f"{plain(k)}, points": v.round(2) for k, v in change.items()},
            }
        ),
        paint=paint,
        height=80 + 19 * len(change),
    )


def confusion(panel: Panel, data: ReportData) -> Figure | None:
    """Which classes are taken for which: source beside G-FRET, or beside the best method."""
    others = [k for k in panel.chosen(99) if k != "source"]
    after = "g-fret" if "g-fret" in others else next(iter(others), "")
    shares: dict[str, Values] = {}
    for label in ("source", after):
        found = [(data.details(r.key) or {}).get("confusion") for r in panel.runs.get(label, [])]
        if counts := [np.asarray(c, dtype=float) for c in found if c is not None]:
            total = np.sum(counts, axis=0)
            shares[label] = total / np.maximum(total.sum(1, keepdims=True), 1)
    if len(shares) < 2:
        return None
    size = len(shares["source"])
    names = panel.classes(data, size)
    largest = {label: _largest(matrix, 20) for label, matrix in shares.items()}

    def paint(canvas: Canvas) -> None:
        axes = canvas.axes(1, 2, sharey=True)
        for ax, (label, matrix) in zip(axes, shares.items(), strict=True):
            ax.set_title(plain(label, 24))
            canvas.heat(ax, matrix, BLUE, 0.9)
            ax.set_aspect("equal")
            for i, j in largest[label][:10]:
                text = f"{label}: {names[i]} taken for {names[j]} in {100 * matrix[i, j]:.1f} %"
                canvas.point(ax, j, i, None, text)
            canvas.ticks(ax.xaxis, names if size <= 20 else [])
            canvas.ticks(ax.yaxis, names if size <= 20 else [])

    worst = {label: found[0] if found else (0, 0) for label, found in largest.items()}
    worst_cases = "; ".join(
        f"{plain(k)}: {names[i]} taken for {names[j]} in {100 * shares[k][i, j]:.0f} %"
        for k, (i, j) in worst.items()
    )
    return Figure(
        name=f"confusion-{panel.name}",
        title=f"Confusion before and after: {panel.title}",
        caption="Rows are labels, columns predictions; the shade is the share of the label's"
        f" images (full: 90 % opaque), {size} classes, over all domains. A full column is a class"
        " that everything is taken for. The table lists the 20 largest confusions of each. On"
        f" {panel.about(99)}",
        alt=f"Most frequent confusion of {worst_cases}.",
        numbers=DataFrame(
            [
                (label, names[i], names[j], round(100 * float(shares[label][i, j]), 2))
                for label, found in largest.items()
                for i, j in found
            ],
            columns=["method", "label", "predicted", "% of the label"],
        ),
        paint=paint,
        height=250,
    )


def _largest(matrix: Values, most: int) -> list[tuple[int, int]]:
    off = matrix - np.diag(np.diag(matrix))
    ranked = np.argsort(-off, axis=None, kind="stable")[:most]
    return [divmod(int(flat), len(matrix)) for flat in ranked if off.flat[flat] > 0]


def calibration(panel: Panel, data: ReportData) -> Figure | None:
    """Is a confidence of 80 % right in 80 % of the cases? The reliability diagram."""
    bins: dict[str, DataFrame] = {}
    for label in panel.chosen(7):
        keys = ("bin_count", "bin_confidence", "bin_right")
        n, confidence, right = (panel.summed(data, label, k) for k in keys)
        if n is not None and confidence is not None and right is not None and n.sum():
            some = n > 0
            parts = {
                "images": n[some].astype(int),
                "confidence %": 100 * confidence[some] / n[some],
            }
            bins[label] = DataFrame({**parts, "accuracy %": 100 * right[some] / n[some]})
    if not bins:
        return None
    errors = {label: calibration_error(b) for label, b in bins.items()}
    series, least = list(bins), 20

    def paint(canvas: Canvas) -> None:
        (ax,) = canvas.axes()
        ax.set(title="accuracy %", xlabel="confidence %", ylim=(0, 101))
        enough = {label: b[b["images"] >= least] for label, b in bins.items()}
        low = min((b["confidence %"].min() for b in enough.values() if len(b)), default=0)
        ax.set_xlim(min(10 * int(low // 10), 90), 100)
        ax.plot([0, 100], [0, 100], color=INK, linewidth=0.8, alpha=0.5)
        for number, (label, b) in enumerate(enough.items()):
            canvas.line(ax, b["confidence %"], b["accuracy %"], label, number, 1.5, markers=True)
            for n, c, a in b.itertuples(index=False, name=None):
                text = f"{label}: {a:.0f} % right at {c:.0f} % confidence ({int(n):,} images)"
                canvas.point(ax, c, a, number, text)
        ranked = sorted(series, key=lambda k: errors[k])
        notes = {k: f"{e:.1f}" for k, e in errors.items()}
        canvas.legend({k: series.index(k) for k in ranked}, notes, "ECE %")

    tables = [b.round(2).assign(method=label) for label, b in bins.items()]
    return Figure(
        name=f"calibration-{panel.name}",
        title=f"Calibration: {panel.title}",
        caption="Accuracy of predictions by their confidence. On the diagonal, confidence is"
        " honest; below it, the model is too sure. The number at a name is the expected calibration"
        f" error over all domains; bins of fewer than {least} images are not drawn. On"
        f" {panel.about(7)}",
        alt="Expected calibration error: "
        + ", ".join(f"{plain(k)} {e:.1f} %" for k, e in errors.items())
        + f". Best calibrated: {plain(min(errors, key=lambda k: errors[k]))}.",
        numbers=concat(tables)[["method", "images", "confidence %", "accuracy %"]],
        paint=paint,
        series=series,
    )


def calibration_error(bins: DataFrame) -> float:
    """ECE in %: the gap between confidence and accuracy, weighted by images."""
    gaps = (bins["confidence %"] - bins["accuracy %"]).abs()
    return float((bins["images"] * gaps).sum() / bins["images"].sum())
