"""Figures of any runs: accuracy over time and against cost, redundancy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from pandas import DataFrame

from ..data import ReportData
from ..palette import INK, style
from .draw import Canvas, Figure, plain
from .panel import Panel, Values


def spans_of(domains: list[str]) -> list[tuple[str, int, int]]:
    """(domain, start, stop) of runs of equal names; one nameless span where domains are mixed."""
    edges = [i for i in range(1, len(domains)) if domains[i] != domains[i - 1]]
    if len(edges) >= 3 * max(len(set(domains)), 1):
        return [("", 0, len(domains))]
    borders = [0, *edges, len(domains)]
    return [(domains[a], a, b) for a, b in pairwise(borders) if b > a]


def rolling(
    right: Values, images: Values, spans: list[tuple[str, int, int]], window: int
) -> Values:
    """Accuracy over `window` batches around each, by images, never across a border."""
    at = np.arange(len(right))
    lengths = [stop - start for _, start, stop in spans]
    first, last = (np.repeat([s[i] for s in spans], lengths) for i in (1, 2))
    low = np.maximum(at - window // 2, first)
    high = np.minimum(at + (window + 1) // 2, last)
    hits, seen = (np.cumsum([0, *counts]) for counts in (right, images))
    found: Values = (hits[high] - hits[low]) / (seen[high] - seen[low])
    return found


def domain_axis(canvas: Canvas, ax: Any, spans: list[tuple[str, int, int]], unit: str) -> None:
    """Borders, and the domains' names below; batches where there is one domain only."""
    if len(spans) == 1:
        ax.set_xlabel(f"{unit} ({plain(spans[0][0])})" if spans[0][0] else unit)
        return
    for _, start, _ in spans[1:]:
        ax.axvline(start, color=INK, alpha=0.25, linewidth=0.6)
    shown = spans[:: -(-len(spans) // 20)]  # at most 20 names
    canvas.ticks(ax.xaxis, [d for d, _, _ in shown], [(a + b) / 2 for _, a, b in shown])


def _batches(panel: Panel, data: ReportData, label: str) -> DataFrame:
    """Of the first seed; where each case is a domain, one case after the other."""
    first = {r.tags.get("case"): r for r in reversed(panel.runs[label])}
    details = [data.details(r.key) or {} for r in reversed(first.values())]
    parts = [{k: d["batches"][k] for k in ("domain", "right", "images")} for d in details if d]
    return DataFrame(
        {k: [v for part in parts for v in part[k]] for k in ("domain", "right", "images")}
    )


def time(panel: Panel, data: ReportData) -> Figure | None:
    """Accuracy along the stream, method by method, with the borders of the domains."""
    found = {label: _batches(panel, data, label) for label in panel.chosen()}
    found = {label: b for label, b in found.items() if len(b) > 1}
    if not found:
        return None
    domains = next(iter(found.values()))["domain"].tolist()
    found = {label: b for label, b in found.items() if b["domain"].tolist() == domains}
    spans = spans_of(domains)
    window = max(1, min(5, len(domains) // (3 * len(spans))))
    lines = {
        label: 100 * rolling(b["right"].to_numpy(), b["images"].to_numpy(), spans, window)
        for label, b in found.items()
    }
    starts = [start for _, start, _ in spans]
    sums = {
        label: [np.add.reduceat(b[k].to_numpy(), starts) for k in ("right", "images")]
        for label, b in found.items()
    }
    means = {label: 100 * right / images for label, (right, images) in sums.items()}
    numbers = DataFrame(
        {
            "domain": [domain or "all" for domain, _, _ in spans],
            "batches": [stop - start for _, start, stop in spans],
            **{f"{plain(label)} %": np.round(values, 2) for label, values in means.items()},
        }
    )
    series = list(found)
    overall = {k: float(np.mean(v)) for k, v in means.items()}

    def paint(canvas: Canvas) -> None:
        (ax,) = canvas.axes()
        ax.set(title="accuracy %", xlim=(0, len(domains)))
        for number, (label, line) in enumerate(lines.items()):
            for (domain, start, stop), mean in zip(spans, means[label], strict=True):
                at, values = np.arange(start, stop) + 0.5, line[start:stop]
                if len(at) == 1:  # one batch is no line: as wide as the batch
                    at, values = at[0] + np.array([-0.4, 0.4]), np.repeat(values, 2)
                heavy = label in ("source", "s-fret", "g-fret")
                canvas.line(ax, at, values, label, number, 1.7 if heavy else 1.1)
                where = f", {domain}" if domain else ""
                text = f"{label}{where}: {mean:.1f} %"
                canvas.point(ax, (start + stop) / 2, mean, number, text)
        domain_axis(canvas, ax, spans, "batch")
        ranked = sorted(series, key=lambda k: -overall[k])
        notes = {k: f"{v:.1f}" for k, v in overall.items()}
        canvas.legend({k: series.index(k) for k in ranked}, notes, "mean %")

    best = max(found, key=panel.accuracy)
    return Figure(
        name=f"time-{panel.name}",
        title=f"Accuracy over time: {panel.title}",
        caption=f"Accuracy of the predictions along the stream, over {window} batches around each."
        " Vertical lines are borders of domains: a method that forgets or collapses falls and"
        f" stays low. The first seed of {panel.about()}",
        alt=f"Accuracy along the stream for {len(found)} methods over {len(spans)} domains; the"
        f" best on average is {plain(best)} at {100 * panel.accuracy(best):.1f} %.",
        numbers=numbers,
        paint=paint,
        series=series,
    )


# ---- accuracy against cost -----------------------------------------------------------------------


def cost(panel: Panel, data: ReportData) -> Figure | None:
    """What a point more costs in time per batch."""
    rows = []
    for label in panel.chosen(16):
        runs = panel.runs[label]
        seconds = [s for r in runs if (s := r.overall.get("seconds_per_batch"))]
        if not seconds:
            continue
        by_seed = DataFrame([(r.run["seed"], r.overall["mean_over_domains"]) for r in runs])
        values = 100 * by_seed.groupby(0)[1].mean()
        # the median: a run beside a busy neighbor does not count
        ms, passes = 1000 * float(np.median(seconds)), runs[0].rows[0].get("passes")
        rows.append((label, ms, np.nan, passes, values.mean(), values.std()))
    head = ["method", "ms per batch", "× source", "passes", "accuracy %", "± %"]
    numbers = DataFrame(rows, columns=head)
    if len(numbers) < 2:
        return None
    base = numbers["ms per batch"][numbers["method"] == "source"]
    if len(base):
        numbers["× source"] = numbers["ms per batch"] / base.iloc[0]
    points = list(numbers.itertuples(index=False, name=None))

    def paint(canvas: Canvas) -> None:
        from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

        (ax,) = canvas.axes()
        ax.set(title="accuracy %", xlabel="ms per batch", xscale="log")
        times = numbers["ms per batch"]
        ax.set_xlim(times.min() / 1.3, times.max() * 1.3)
        for number, (label, ms, _, _, mean, std) in enumerate(points):
            look = style(label)
            bars = ax.errorbar(ms, mean, yerr=std if std == std else None, color=look.color)
            for bar in bars[2]:
                canvas.mark(bar, number)
            (dot,) = ax.plot([ms], [mean], marker=look.marker, color=look.color, markersize=6.5)
            canvas.mark(dot, number)
            canvas.point(ax, ms, mean, number, f"{label}: {mean:.1f} %, {ms:.3g} ms per batch")
        few = times.max() / times.min() < 100
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(ScalarFormatter())
        canvas.legend(
            {p[0]: n for n, p in enumerate(points)}, {p[0]: f"{p[4]:.1f}" for p in points}
        )

    best = max(points, key=lambda p: p[4])
    cheap = min((p for p in points if p[4] >= best[4] - 0.5), key=lambda p: p[1])
    return Figure(
        name=f"cost-{panel.name}",
        title=f"Accuracy against cost: {panel.title}",
        caption="Mean accuracy over domains and time per batch (logarithmic). Up and to the left is"
        " better; bars are the standard deviation over seeds. Times of runs that shared a machine"
        f" with others are too long. On {panel.about(16)}",
        alt=f"{plain(best[0])} is the most accurate at {best[4]:.1f} %; the cheapest within half a"
        f" point of it is {plain(cheap[0])} at {cheap[1]:.3g} ms per batch.",
        numbers=numbers.round(2),
        paint=paint,
        series=[p[0] for p in points],
    )


# ---- redundancy ----------------------------------------------------------------------------------


def nrs(panel: Panel, data: ReportData) -> Figure | None:
    """Redundancy before and after, domain by domain."""
    scores = {}
    for label in panel.chosen():
        rows = [row for record in panel.runs[label] for row in record.rows]
        table = DataFrame(rows).groupby("domain", sort=False)
        for key in ("nrs_before", "nrs_after"):
            found = table[key].mean().dropna() if key in rows[0] else DataFrame()
            if len(found):
                scores[label, key] = found.astype(float)
    after = {label: found for (label, key), found in scores.items() if key == "nrs_after"}
    after.pop("source", None)
    if not after:
        return None
    # what every run measures first is the model as it came
    lines = DataFrame({"source": scores[next(iter(after)), "nrs_before"], **after})
    series, means = list(lines), lines.mean()

    def paint(canvas: Canvas) -> None:
        (ax,) = canvas.axes()
        ax.set_title("normalized redundancy score")
        for number, label in enumerate(series):
            canvas.line(ax, range(len(lines)), lines[label], label, number, 1.3, markers=True)
            for x, (domain, value) in enumerate(lines[label].items()):
                canvas.point(ax, x, value, number, f"{label}, {domain}: NRS {value:.3f}")
        shown = range(0, len(lines), -(-len(lines) // 20))
        canvas.ticks(ax.xaxis, [str(lines.index[i]) for i in shown], list(shown))
        ranked = means.sort_values(kind="stable")
        notes = {k: f"{m:.3f}" for k, m in ranked.items()}
        canvas.legend({k: series.index(k) for k in ranked.index}, notes, "mean")

    least = means.drop("source").idxmin()
    lower = int((means.drop("source") < means["source"]).sum())
    return Figure(
        name=f"nrs-{panel.name}",
        title=f"Redundancy before and after: {panel.title}",
        caption="Normalized redundancy score of the features (0: none shares anything with another,"
        " 1: all are copies) of the last batch of each domain, under the source model and as"
        f" adapted by then. On {panel.about()}",
        alt=f"{lower} of {len(after)} methods lower the mean score of the source model,"
        f" {means['source']:.3f}; {plain(least)} has the lowest, {means[least]:.3f}.",
        numbers=lines.round(4).rename(columns=plain).rename_axis("domain").reset_index(),
        paint=paint,
        series=series,
    )
