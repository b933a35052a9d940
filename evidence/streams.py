"""Tables and thresholds of benchmarks/streams.py, from its records alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from .committed import METHODS, Evidence
from .tables import DASH, FEWER, MARGIN, WORSE, markdown

OURS = ("stein", "auto")
LONG = "cifar-long"
EXCEPTIONS, LEAD = 2, 5.0  # streams, points
ONE_CLASS = ("50", "70", "80")
GROUPS: dict[str, tuple[str, ...]] = {
    "Shuffled": (
        *("digits-64", "digits-8", "cifar-128", "cifar-8", "cifar-1", "cifar-lt"),
        LONG,
    ),
    "Short: every corruption begins anew": ("digits-short", "cifar-short"),
    "Clean, and one frequent class": (
        "clean",
        *(f"{shift}-{share}" for shift in ("clean", "noise", "fog") for share in ONE_CLASS),
    ),
    "CIFAR-10-C in uneven order": ("correlated-16", "correlated-4", "sorted-16", "sorted-4"),
    "Other data": (
        *("pacs-art_painting", "pacs-cartoon", "pacs-photo"),
        *("imagenet-clean", "imagenet-c"),
    ),
}
STREAMS = [name for names in GROUPS.values() for name in names]
_UNEVEN = tuple(f"{shift}-{share}" for shift in ("clean", "noise", "fog") for share in ONE_CLASS)
KINDS: dict[str, tuple[str, ...]] = {  # the long stream is left out: few methods were run on it
    "large batches": ("digits-64", "cifar-128"),
    "small batches": ("digits-8", "cifar-8", "cifar-1"),
    "jobs of 128 images": ("digits-short", "cifar-short"),
    "uneven classes": ("cifar-lt", *_UNEVEN),
    "sorted classes": ("correlated-16", "correlated-4", "sorted-16", "sorted-4"),
    "no shift": ("clean", "imagenet-clean"),
    "PACS, ImageNet-C": ("pacs-art_painting", "pacs-cartoon", "pacs-photo", "imagenet-c"),
}
HARD = ("small batches", "uneven classes", "sorted classes", "no shift")
Records = Iterable[Mapping[str, Any]]
Check = tuple[str, bool | None, str]  # what is asked, passed (None: not run), what was found


class Scores:
    """Accuracy in percent by stream, method and seed; the last record of a run counts."""

    def __init__(self, records: Records, planned: Mapping[str, str] | None = None) -> None:
        self.runs: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
        self.titles: dict[str, str] = dict(planned or {})  # of streams, also of those not run yet
        self.failed: dict[tuple[str, str, int], str] = {}
        for r in records:
            place, seed = (str(r["stream"]), str(r["method"])), int(r["seed"])
            self.titles[place[0]] = str(r["title"])
            if r["accuracy"] is None:
                self.failed[(*place, seed)] = str(r["error"]).strip().splitlines()[-1]
            else:
                self.failed.pop((*place, seed), None)
                self.runs.setdefault(place, {})[seed] = r
        self.streams = [name for name in STREAMS if name in self.titles]
        present = {method for _, method in self.runs}
        known = [m for m in METHODS if m in present and m not in OURS]
        others = sorted(present - {*known, *OURS})
        self.methods = [*known, *others, *(m for m in OURS if m in present)]
        self.published = [m for m in (*known, *others) if m != "source"]

    def mean(self, stream: str, method: str, seeds: Iterable[int] | None = None) -> float | None:
        """Over these seeds, or over those of the stream that the method has."""
        found = self.runs.get((stream, method), {})
        chosen = list(found.keys() & self.seeds(stream) if seeds is None else seeds)
        if not chosen:
            return None
        return 100 * sum(float(found[s]["accuracy"]) for s in chosen) / len(chosen)

    def pair(self, stream: str, one: str, other: str) -> tuple[float, float] | None:
        """Two methods on the same seeds."""
        both = self.common_seeds(stream, one, other)
        first, second = (self.mean(stream, method, both) for method in (one, other))
        return None if first is None or second is None else (first, second)

    def common_seeds(self, stream: str, one: str, other: str) -> set[int]:
        """Those of the stream that both methods have, or else any that both have."""
        found = [set(self.runs.get((stream, method), {})) for method in (one, other)]
        both = found[0] & found[1]
        return both & self.seeds(stream) or both

    def seeds(self, stream: str) -> set[int]:
        """Those that most methods with runs on the stream have: another seed is another stream."""
        return self._seeds.get(stream, set())

    @cached_property
    def _seeds(self) -> dict[str, set[int]]:
        runs: dict[str, list[Iterable[int]]] = {}
        for (stream, _), found in self.runs.items():
            runs.setdefault(stream, []).append(found)
        return {
            stream: {s for s, n in Counter(chain.from_iterable(of)).items() if 2 * n > len(of)}
            for stream, of in runs.items()
        }

    def lacks(self, method: str, streams: Sequence[str]) -> bool:
        """Whether it was run on fewer seeds than most methods."""
        return any(self.seeds(s) - self.runs.get((s, method), {}).keys() for s in streams)

    def over(self, streams: Sequence[str], method: str) -> float | None:
        """The mean over streams; None where one was not run."""
        means = [self.mean(stream, method) for stream in streams]
        known = [value for value in means if value is not None]
        return sum(known) / len(known) if known and len(known) == len(means) else None

    def pair_over(self, streams: Sequence[str], one: str, other: str) -> tuple[float, float] | None:
        """Means of two methods over streams, on the same seeds; None where one was not run."""
        pairs = [pair for s in streams if (pair := self.pair(s, one, other)) is not None]
        if not pairs or len(pairs) < len(streams):
            return None
        return sum(a for a, _ in pairs) / len(pairs), sum(b for _, b in pairs) / len(pairs)

    def gaps(self, method: str) -> list[float]:
        """Points over the source, stream by stream."""
        pairs = (self.pair(stream, method, "source") for stream in self.streams)
        return [pair[0] - pair[1] for pair in pairs if pair is not None]

    @property
    def shared(self) -> list[str]:
        """The streams that most methods have."""
        counts = {s: sum((s, m) in self.runs for m in self.methods) for s in self.streams}
        return [s for s in self.streams if 2 * counts[s] > len(self.methods)]


# ---- tables -------------------------------------------------------------------------------------


Costs = Mapping[str, float]  # a step of each method, in steps of the source model


def costs_of(evidence: Evidence) -> Costs:
    """What benchmarks/costs.py measured, all methods in turns in one process."""
    found = evidence.benchmark("costs")["methods"]
    return {method: float(facts["ratio"]) for method, facts in found.items()}


def _times(costs: Costs, method: str) -> str:
    return f"{costs[method]:.1f} ×" if method in costs else DASH


def summary_table(scores: Scores) -> str:
    """Over the streams: the mean, the worst, and how many are below the source."""
    shared = scores.shared
    means = {m: scores.over(shared, m) for m in scores.methods}
    best = max((v for v in means.values() if v is not None), default=0.0)
    rows = []
    for method, mean in means.items():
        gaps = scores.gaps(method)
        rows.append([method, _number(mean, best)])
        rows[-1].append(f"{min(gaps):+.1f}" if gaps else DASH)
        rows[-1].append(f"{sum(gap < -MARGIN for gap in gaps)} of {len(gaps)}")
    head = ["method", f"mean of {len(shared)} streams", "worst against source"]
    return markdown([*head, "below source − 0.5"], rows)


def kinds_table(scores: Scores, costs: Costs) -> str:
    """Methods × kinds of streams, from the highest mean down; ▼ is below the source on the same
    seeds."""
    every = [stream for streams in KINDS.values() for stream in streams]
    mean = f"mean of {len(every)} streams"
    columns = {**KINDS, mean: every}
    means = {m: {k: scores.over(s, m) for k, s in columns.items()} for m in scores.methods}
    best = {k: max((v[k] or 0.0 for v in means.values()), default=0.0) for k in columns}
    rows = []
    for method in sorted(scores.methods, key=lambda m: -(means[m][mean] or 0.0)):
        cells = [f"`{method}`"]
        for kind, value in means[method].items():
            pair = scores.pair_over(columns[kind], method, "source")
            below = pair is not None and pair[0] < pair[1] - MARGIN
            few = value is not None and scores.lacks(method, columns[kind])
            cells.append(_number(value, best[kind]) + f" {FEWER}" * few + f" {WORSE}" * below)
        rows.append([*cells, _times(costs, method)])
    return markdown(["method", *columns, "cost"], rows)


def caption(scores: Scores) -> str:
    """What the table of kinds shows, with the number of seeds."""
    every = [stream for streams in KINDS.values() for stream in streams]
    counts = sorted({len(scores.seeds(stream)) for stream in every if scores.seeds(stream)})
    one = [stream for stream in every if len(scores.seeds(stream)) == 1]
    seeds = f"{counts[0]} to {counts[-1]} seeds" if len(counts) > 1 else f"{counts[0]} seeds"
    if one:
        seeds = f"one seed on {len(one)} of them" if len(one) < len(every) else "one seed"
    lacking = any(
        scores.lacks(m, [s]) for s in every for m in scores.methods if (s, m) in scores.runs
    )
    few = f", {FEWER} fewer seeds" if lacking else ""
    return (
        f"Accuracy in percent over {len(every)} streams of CIFAR-10-C, digits, PACS and ImageNet,"
        f" {seeds}, defaults. Bold: best, {WORSE} more than half a point"
        f" below the source model{few}. Cost: time of a step over the source model's (ResNet-20,"
        " batches of 64). Jobs begin anew. `auto` and `stein` were chosen on the"
        " same images of CIFAR-10-C and digits, in other orders"
        " ([more](docs/auto.md#what-was-looked-at)). The data, digits apart, are private copies."
    )


def which_text(scores: Scores, costs: Costs) -> str:
    """Which method should I use? Five points."""
    points = (
        _start_with_auto(scores),
        leads(scores),
        _large_batches(scores, costs),
        _below_source(scores),
        f"**Time.** `stein`, which learns nothing, takes {costs['stein']:.1f} times the source"
        f" model's, `auto` {costs['auto']:.1f}. Then run `fretta compare` on your images.",
    )
    return "\n".join(f"- {point}" for point in points)


def _start_with_auto(scores: Scores) -> str:
    means = {m: scores.over(scores.shared, m) for m in scores.methods}
    known = {m: value for m, value in means.items() if value is not None}
    best = max((m for m in scores.published if m in known), key=lambda m: known[m])
    worst = min(scores.gaps("auto"))
    low = "at least as good as" if worst >= 0 else f"at most {-worst:.1f} points below"
    return (
        f"**Start with `auto`**: {low} the source model on every stream (means over"
        f" seeds). Mean over {len(scores.shared)} streams: `auto` {known['auto']:.1f}, the source"
        f" model {known['source']:.1f}, `{best}`, the best published method run on all,"
        f" {known[best]:.1f}."
    )


def leads(scores: Scores) -> str:
    """On how many kinds of streams auto is ahead of all published methods, and where behind; two
    methods are compared on the seeds that both have."""
    behind, gaps = [], []
    rivals = ("source", *scores.published)
    for kind, streams in KINDS.items():
        pairs = {m: scores.pair_over(streams, "auto", m) for m in rivals}
        known = {m: pair for m, pair in pairs.items() if pair is not None}
        if 2 * len(known) <= len(rivals):
            continue  # most methods were not run
        best = min(known, key=lambda m: known[m][0] - known[m][1])
        mine, its = known[best]
        gaps.append(mine - its)
        if gaps[-1] < -MARGIN:
            few = f" {FEWER}" * scores.lacks(best, streams)
            behind.append(f"{kind} (`{best}` {its:.1f}{few}, `auto` {mine:.1f})")
    first, level = sum(x > MARGIN for x in gaps), sum(abs(x) <= MARGIN for x in gaps)
    lost = f", behind on {' and '.join(behind)}" if behind else ""
    return (
        f"**Published methods.** Of {len(gaps)} kinds of streams `auto` leads on {first} by over"
        f" half a point and is level with the best on {level}{lost}."
    )


def _large_batches(scores: Scores, costs: Costs) -> str:
    """The two best published methods, and where one of them leaves auto behind."""
    streams = KINDS["large batches"]
    means = {m: scores.over(streams, m) for m in (*scores.published, "auto")}
    known = {m: value for m, value in means.items() if value is not None}
    best = sorted(known.keys() - {"auto"}, key=lambda m: -known[m])[:2]
    pairs = {(s, m): scores.pair(s, "auto", m) for s in streams for m in scores.published}
    stream, ahead, gap = _furthest_below(pairs)
    found = ", ".join(f"`{m}` {known[m]:.1f}" for m in (*best, "auto"))
    text = f"**Large batches, mixed classes.** Published ones do as well: {found}."
    if gap >= -MARGIN:
        return text
    cost = f" (cost {costs[ahead]:.0f} ×)" if ahead in costs else ""
    place = scores.titles[stream].partition(",")[0]
    return f"{text} On {place} `{ahead}` is {-gap:.1f} ahead{cost}."


def _below_source(scores: Scores) -> str:
    streams = [s for kind in HARD for s in KINDS[kind]]
    pairs = {(s, m): scores.pair(s, m, "source") for s in streams for m in scores.published}
    stream, method, gap = _furthest_below(pairs)
    return (
        "**Single images, uneven or sorted classes, no shift.** Most published ones fall below"
        f" the source model, by up to {-gap:.0f} points (`{method}`,"
        f" {scores.titles[stream]})."
    )


def _furthest_below(
    pairs: Mapping[tuple[str, str], tuple[float, float] | None],
) -> tuple[str, str, float]:
    """Stream, method and points where the first of a pair is furthest below the second."""
    gaps = {place: pair[0] - pair[1] for place, pair in pairs.items() if pair is not None}
    stream, method = min(gaps, key=lambda place: gaps[place])
    return stream, method, gaps[stream, method]


def classes_table(scores: Scores) -> str:
    """One frequent class, without shift, under noise and under fog: over images, over classes.
    Another seed is another class, so a method without all the seeds has no row."""
    rows = []
    for method in scores.methods:
        cells = [method]
        for share in ONE_CLASS:
            streams = [f"{shift}-{share}" for shift in ("clean", "noise", "fog")]
            runs = [run for s in streams for run in scores.runs.get((s, method), {}).values()]
            for measure in ("accuracy", "accuracy_macro"):
                values = [run[measure] for run in runs if measure in run]
                known = values and len(values) == len(runs) and not scores.lacks(method, streams)
                cells.append(f"{100 * sum(values) / len(values):.1f}" if known else DASH)
        if DASH not in cells:
            rows.append(cells)
    heads = (f"{share} %, over {of}" for share in ONE_CLASS for of in ("images", "classes"))
    return markdown(["method", *heads], rows)


def group_table(scores: Scores, streams: Sequence[str]) -> str:
    """Methods × streams: bold is the highest, ▼ more than half a point below the source on the
    same seeds, ° fewer seeds than most."""
    best = {s: max(scores.mean(s, m) or 0.0 for m in scores.methods) for s in streams}
    rows = []
    for method in scores.methods:
        rows.append([method])
        for stream in streams:
            pair = scores.pair(stream, method, "source")
            below = pair is not None and pair[0] < pair[1] - MARGIN
            text = _number(scores.mean(stream, method), best[stream])
            few = text != DASH and scores.lacks(method, [stream])
            rows[-1].append(text + f" {FEWER}" * few + f" {WORSE}" * below)
    one = {s: " (1)" if len(scores.seeds(s)) == 1 else "" for s in streams}
    return markdown(["method", *(scores.titles[s] + one[s] for s in streams)], rows)


def _number(value: float | None, best: float) -> str:
    if value is None:
        return DASH
    return f"**{value:.1f}**" if value >= best - 1e-9 else f"{value:.1f}"


def table_text(records: Records) -> str:
    """All tables, and what failed."""
    scores = Scores(records)
    parts = [summary_table(scores)]
    for title, names in GROUPS.items():
        streams = [name for name in names if name in scores.streams]
        if streams:
            parts.append(f"{title}:\n\n{group_table(scores, streams)}")
    failed = [f"- {s}, {m}, seed {n}: {e}" for (s, m, n), e in sorted(scores.failed.items())]
    return "\n\n".join([*parts, *(["Failed:\n\n" + "\n".join(failed)] if failed else [])])


def kinds_of(evidence: Evidence) -> str:
    return kinds_table(Scores(evidence.lines("streams")), costs_of(evidence))


def caption_of(evidence: Evidence) -> str:
    return caption(Scores(evidence.lines("streams")))


def which_of(evidence: Evidence) -> str:
    return which_text(Scores(evidence.lines("streams")), costs_of(evidence))


def classes_of(evidence: Evidence) -> str:
    return classes_table(Scores(evidence.lines("streams")))


def streams_table(evidence: Evidence) -> str:
    return table_text(evidence.lines("streams"))


def recipes_table(evidence: Evidence) -> str:
    """What the streams are: order, batches and images, from the records."""
    scores, rows = Scores(evidence.lines("streams")), []
    for stream in scores.streams:
        runs = [
            run
            for (name, _), found in scores.runs.items()
            if name == stream
            for run in found.values()
        ]
        counts = sorted({run["images"] for run in runs})
        images = "-".join(f"{n:,}" for n in sorted({counts[0], counts[-1]}))
        rows.append([scores.titles[stream], f"`{stream}`", f"`{runs[0]['order']}`"])
        rows[-1] += [str(runs[0]["batch_size"]), images, str(len(scores.seeds(stream)))]
    return markdown(["stream", "`--streams`", "order", "batch", "images", "seeds"], rows)


def provenance_text(evidence: Evidence) -> str:
    """Where the records come from."""
    scores = Scores(evidence.lines("streams"))
    records = [run for found in scores.runs.values() for run in found.values()]
    taken = sum(r["origin"] != "run" for r in records)
    hours = sum(r["cpu_seconds"] or 0 for r in records) / 3600
    commits = sorted({str(r["commit"])[:7] for r in records if r["origin"] == "run"})
    processors = sorted({str(r["processor"]) for r in records if r["origin"] == "run"})
    return (
        f"{len(records)} records, {taken} of them runs of the same key in evidence/records.jsonl;"
        f" the others took {hours:.1f} hours of one core inside the adapters, on"
        f" {', '.join(processors)}, commits {', '.join(commits)}."
    )


# ---- thresholds ---------------------------------------------------------------------------------


def checks(records: Records, planned: Mapping[str, str] | None = None) -> list[Check]:
    """Every threshold, one by one."""
    scores = Scores(records, planned)
    found: list[Check] = []
    for method in OURS:
        found += [
            _above(scores, f"{method} ≥ source − 0.5", stream, method, MARGIN)
            for stream in scores.streams
        ]
    found += [*_near_best(scores), _lead(scores)]
    found.append(
        _small(
            scores,
            "stein in batches of 8, at most 0.5 below bn in batches of 128",
            "cifar-8",
            MARGIN,
        )
    )
    found.append(
        _small(
            scores,
            "stein in sorted batches of 4, at most 4.5 below bn in shuffled batches of 128",
            "sorted-4",
            4 + MARGIN,
        )
    )
    one = "a batch of one ≥ source"
    return found + [_above(scores, f"{m}, {one}", "cifar-1", m, 0.0) for m in OURS]


def _above(scores: Scores, title: str, stream: str, method: str, margin: float) -> Check:
    pair, title = scores.pair(stream, method, "source"), f"{title}: {stream}"
    if pair is None:
        return title, None, "not run"
    return title, pair[0] >= pair[1] - margin, f"{pair[0]:.2f}, source {pair[1]:.2f}"


def _near_best(scores: Scores) -> list[Check]:
    """auto against the best published method, stream by stream and counted."""
    rows: list[Check] = []
    for stream in scores.streams:
        pairs = {m: scores.pair(stream, "auto", m) for m in scores.published}
        gaps = {m: pair[0] - pair[1] for m, pair in pairs.items() if pair is not None}
        best = min(gaps, key=lambda m: gaps[m], default="")
        title = f"auto within 0.5 of the best published method: {stream}"
        seen = f"{gaps[best]:+.2f} against {best}" if gaps else "not run"
        rows.append((title, gaps[best] >= -MARGIN if gaps else None, seen))
    misses, missing = (sum(p is value for _, p, _ in rows) for value in (False, None))
    verdict = None if missing and misses <= EXCEPTIONS else misses <= EXCEPTIONS
    title = "auto within 0.5 of the best published method on all but two streams"
    return [*rows, (title, verdict, f"{misses} misses, {missing} not run")]


def _lead(scores: Scores) -> Check:
    """Over the streams that all of them have; open while one but the long one is missing."""
    title, shared = "auto, mean over the streams ≥ best published method + 5", scores.shared
    mine = scores.over(shared, "auto")
    means = {m: scores.over(shared, m) for m in scores.published}
    known = {m: value for m, value in means.items() if value is not None}
    if mine is None or not known:
        return title, None, "not run"
    best = max(known, key=lambda m: known[m])
    complete = set(scores.streams) - set(shared) <= {LONG}
    seen = f"{mine:.2f}, {best} {known[best]:.2f}, {len(shared)} of {len(scores.streams)} streams"
    return title, mine >= known[best] + LEAD if complete else None, seen


def _small(scores: Scores, title: str, stream: str, margin: float) -> Check:
    one, other = scores.mean(stream, "stein"), scores.mean("cifar-128", "bn")
    if one is None or other is None:
        return title, None, "not run"
    return title, one >= other - margin, f"{one:.2f}, bn {other:.2f}"


def check_text(records: Records, planned: Mapping[str, str] | None = None) -> str:
    words = {True: "pass", False: "FAIL", None: "open"}
    found = checks(records, planned)
    lines = [f"{words[passed]}  {title}  ({seen})" for title, passed, seen in found]
    counts = (f"{sum(p is value for _, p, _ in found)} {word}" for value, word in words.items())
    return "\n".join([*lines, ", ".join(counts)])


def thresholds_table(evidence: Evidence) -> str:
    """What is not met, then what is not run; the rest as a count."""
    found = checks(evidence.lines("streams"))
    open_ones = sorted((c for c in found if c[1] is not True), key=lambda c: c[1] is None)
    rows = [[title, "open" if p is None else "**missed**", seen] for title, p, seen in open_ones]
    rows.append(["all others", "met", str(len(found) - len(rows))])
    return markdown(["threshold", "", "found"], rows)


# ---- the parts of auto --------------------------------------------------------------------------


def parts_table(evidence: Evidence) -> str:
    """What each part is worth: benchmarks/auto_parts.py."""
    rows = evidence.benchmark("auto-parts")["parts"]
    streams = list(dict.fromkeys(row["stream"] for row in rows))
    titles = {row["stream"]: row["title"] for row in rows}
    found = {(row["part"], row["stream"]): 100 * row["accuracy"] for row in rows}
    best = {s: max(v for (_, stream), v in found.items() if stream == s) for s in streams}
    seconds: dict[str, float] = {}
    for row in rows:
        seconds[row["part"]] = seconds.get(row["part"], 0.0) + row["seconds"]
    table = []
    for part, total in seconds.items():
        numbers = [_number(found.get((part, s)), best[s]) for s in streams]
        table.append([part, *numbers, f"{total / seconds['source']:.1f} ×"])
    return markdown(["", *(titles[s] for s in streams), "cost"], table)
