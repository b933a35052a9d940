"""Figures of any runs: over time, cost, classes, calibration, confusion, redundancy, settings."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, concat

from ...experiment.records import Record, digest
from ...experiment.results import setup_of
from ..data import ReportData
from ..palette import BLUE, INK, RED, style
from ..setups import Setup
from ..tables import principal_rows, slug
from .draw import SMALL, Canvas, Figure, plain

MOST = 12  # methods in a figure
GRIDS = {("lam", "lr"): ("λ", "learning rate"), ("k1", "k2"): ("K1", "K2")}
FLAT = 0.05  # points: less than what is shown is no difference
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Panel:
    """A setup as figures show it: finished runs by label, by case and seed."""

    setup: Setup
    runs: dict[str, list[Record]]

    @property
    def name(self) -> str:
        """A stem for file names."""
        return f"{slug(self.setup.suite, self.setup.name)[:40]}-{setup_of(self.setup.run)[:4]}"

    @property
    def title(self) -> str:
        return plain(self.setup.title or self.setup.suite or "runs", 40)

    @property
    def is_grid(self) -> bool:
        """Dozens of settings of one method, not a comparison of methods."""
        methods = {runs[0].run["method"] for runs in self.runs.values()}
        return len(self.runs) > 3 * len(methods)

    def accuracy(self, label: str) -> float:
        """Mean over domains and seeds."""
        return float(np.mean([r.overall["mean_over_domains"] for r in self.runs[label]]))

    def about(self, most: int = MOST) -> str:
        """On what data, and how much of it; for captions."""
        run, seeds = self.setup.run, len(self.setup.seeds)
        limit = (run.get("order_options") or {}).get("limit")
        missing = len(self.runs) - len(self.chosen(most))
        images = "" if limit is None else f", {limit:,} images per domain"
        others = f" {missing} other method{'s' * (missing > 1)} not drawn." if missing else ""
        return (
            f"{self.title} (suite {plain(self.setup.suite or '–')}), {plain(run['model']['spec'])},"
            f" {plain(run['order'])} stream in batches of {run['batch_size']}{images},"
            f" {seeds} seed{'s' * (seeds > 1)}.{others}"
        )

    def chosen(self, most: int = MOST) -> list[str]:
        """Source first, then the best; at most so many. FRET's own stay in."""
        own = [m for m in ("source", "bn", "s-fret", "g-fret") if m in self.runs]
        rest = sorted(self.runs.keys() - set(own), key=lambda m: (-self.accuracy(m), m))
        kept = set((own + rest)[:most])
        return sorted(kept, key=lambda m: (m != "source", -self.accuracy(m), m))

    def summed(self, data: ReportData, label: str, key: str) -> Values | None:
        """A list of counts in the details, added up over domains and seeds: e.g. "class_seen"."""
        found = [
            np.asarray(domain[key], dtype=float)
            for run in self.runs[label]
            for domain in (data.details(run.key) or {}).get("domains", [])
        ]
        same = len({len(f) for f in found}) == 1
        return np.sum(found, axis=0) if same else None

    def classes(self, data: ReportData, number: int) -> list[str]:
        """As the data set calls them; numbers where no run says, or runs do not agree."""
        details = [data.details(runs[0].key) or {} for runs in self.runs.values()]
        found = {tuple(map(plain, d["classes"])) for d in details if d.get("classes")}
        if len(found) == 1 and len(names := next(iter(found))) == number:
            return list(names)
        return [str(n) for n in range(number)]


def panels(setups: list[Setup]) -> list[Panel]:
    """Setups with finished runs, those with the most methods first; searches left out."""
    found = []
    for setup in setups:
        done = setup.runs[setup.runs["done"]]
        records = {
            label: done[done["row"] == row]["record"].tolist()
            for label, row in sorted(principal_rows(setup).items(), key=lambda item: item[1])
        }
        runs = {label: [r for r in mine if r.rows] for label, mine in records.items()}
        runs = {label: mine for label, mine in runs.items() if mine}
        if runs and not setup.suite.endswith("/tune"):
            found.append(Panel(setup, runs))
    return sorted(found, key=lambda p: (-len(p.runs), p.setup.suite, p.setup.title))


# ---- accuracy over time --------------------------------------------------------------------------


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
    overall = {k: float(np.average(v, weights=numbers["batches"])) for k, v in means.items()}

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


# ---- classes -------------------------------------------------------------------------------------


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


# ---- calibration and redundancy ------------------------------------------------------------------


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


RUNS = (time, cost, classes, calibration, confusion, nrs)


# ---- sensitivity, figures 4 and 6 of the paper ---------------------------------------------------


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
