"""The table and the thresholds of benchmarks/streams.py, from its records alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .committed import METHODS, Evidence
from .tables import DASH, markdown

OURS = ("stein", "auto")
LONG = "cifar-long"
MARGIN, EXCEPTIONS, LEAD = 0.5, 2, 5.0  # of issue thresholds, in points and streams
Records = Iterable[Mapping[str, Any]]


class Scores:
    """Accuracy in percent by stream, method and seed; the last record of a run counts."""

    def __init__(self, records: Records) -> None:
        self.titles: dict[str, str] = {}
        self.runs: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
        self.failed: dict[tuple[str, str, int], str] = {}
        for r in records:
            place, seed = (str(r["stream"]), str(r["method"])), int(r["seed"])
            self.titles[place[0]] = str(r["title"])
            if r["accuracy"] is None:
                self.failed[(*place, seed)] = str(r["error"]).strip().splitlines()[-1]
                continue
            self.failed.pop((*place, seed), None)
            self.runs.setdefault(place, {})[seed] = r

    @property
    def streams(self) -> list[str]:
        """In the order of the first records, the long one last."""
        return sorted(self.titles, key=lambda name: name == LONG)

    @property
    def methods(self) -> list[str]:
        present = {method for _, method in self.runs}
        known = [m for m in METHODS if m in present and m not in OURS]
        others = sorted(present - set(known) - set(OURS))
        return [*known, *others, *(m for m in OURS if m in present)]

    @property
    def published(self) -> list[str]:
        return [m for m in self.methods if m != "source" and m not in OURS]

    def mean(self, stream: str, method: str, seeds: Iterable[int] | None = None) -> float | None:
        """Over seeds, or over these."""
        found = self.runs.get((stream, method), {})
        chosen = list(found if seeds is None else seeds)
        if not chosen or any(seed not in found for seed in chosen):
            return None
        return 100 * sum(float(found[s]["accuracy"]) for s in chosen) / len(chosen)

    def pair(self, stream: str, one: str, other: str) -> tuple[float, float] | None:
        """Two methods on the seeds that both have."""
        seeds = sorted(
            self.runs.get((stream, one), {}).keys() & self.runs.get((stream, other), {}).keys()
        )
        first, second = (self.mean(stream, m, seeds) for m in (one, other))
        return None if first is None or second is None else (first, second)

    def over_streams(self, method: str, streams: Sequence[str]) -> float | None:
        """The mean over these streams; None where one is missing."""
        found = [self.mean(name, method) for name in streams]
        known = [value for value in found if value is not None]
        return sum(known) / len(known) if known and len(known) == len(found) else None

    def cost(self, method: str) -> float | None:
        """Processor time inside the adapter over that of the source model, on the same runs."""
        mine = theirs = 0.0
        for (stream, name), runs in self.runs.items():
            source = self.runs.get((stream, "source"), {})
            for seed, run in runs.items() if name == method else ():
                base = source.get(seed, {}).get("cpu_seconds")
                if run["cpu_seconds"] is not None and base is not None:
                    mine, theirs = mine + run["cpu_seconds"], theirs + base
        return mine / theirs if theirs else None

    def common(self, methods: Iterable[str]) -> list[str]:
        """Streams that all of these have."""
        wanted = list(methods)
        return [s for s in self.streams if all((s, m) in self.runs for m in wanted)]


# ---- the table ----------------------------------------------------------------------------------


def table_text(records: Records) -> str:
    """Methods × streams: bold is the highest, ▼ more than half a point below the source."""
    scores = Scores(records)
    shared = _shared(scores)
    titles = [scores.titles[name] for name in scores.streams]
    best = {s: max(_known(scores.mean(s, m) for m in scores.methods)) for s in scores.streams}
    rows = []
    for method in scores.methods:
        cells = [_cell(scores, s, method, best[s]) for s in scores.streams]
        mean, cost = scores.over_streams(method, shared), scores.cost(method)
        rows.append([method, *cells, DASH if mean is None else f"{mean:.1f}"])
        rows[-1].append(DASH if cost is None else f"{cost:.1f} ×")
    text = markdown(["method", *titles, f"mean of {len(shared)}", "cost"], rows)
    notes = [f"- {s}, {m}, seed {n}: {e}" for (s, m, n), e in sorted(scores.failed.items())]
    return "\n".join([text, *(["", "Failed:", "", *notes] if notes else [])])


def _shared(scores: Scores) -> list[str]:
    """Streams that enter the mean: all but the long one, which few methods have run."""
    return [name for name in scores.streams if name != LONG]


def _known(values: Iterable[float | None]) -> list[float]:
    return [v for v in values if v is not None] or [0.0]


def _cell(scores: Scores, stream: str, method: str, best: float) -> str:
    value, pair = scores.mean(stream, method), scores.pair(stream, method, "source")
    if value is None:
        return DASH
    text = f"**{value:.1f}**" if value >= best - 1e-9 else f"{value:.1f}"
    return f"{text} ▼" if pair and pair[0] < pair[1] - MARGIN else text


def streams_table(evidence: Evidence) -> str:
    return table_text(evidence.lines("streams"))


# ---- thresholds ---------------------------------------------------------------------------------


def checks(records: Records) -> list[tuple[str, bool | None, str]]:
    """(what is asked, passed or None where runs are missing, what was found)."""
    scores = Scores(records)
    found: list[tuple[str, bool | None, str]] = []
    for method in OURS:
        for stream in scores.streams:
            found.append(
                _above(scores, f"{method} ≥ source − 0.5", stream, method, "source", MARGIN)
            )
    found += _near_best(scores)
    found.append(_lead(scores))
    found.append(_small_batches(scores, "stein, batches of 8 ≥ bn, 128 − 0.5", "cifar-8", MARGIN))
    found.append(_small_batches(scores, "stein, sorted, 4 ≥ bn, 128 − 4.5", "sorted-4", 4.5))
    for method in OURS:
        title = f"{method}, a batch of one ≥ source"
        found.append(_above(scores, title, "cifar-1", method, "source", 0.0))
    return found


def _above(
    scores: Scores, title: str, stream: str, one: str, other: str, margin: float
) -> tuple[str, bool | None, str]:
    pair = scores.pair(stream, one, other)
    if pair is None:
        return f"{title}: {stream}", None, "not run"
    return f"{title}: {stream}", pair[0] >= pair[1] - margin, f"{pair[0]:.2f}, {pair[1]:.2f}"


def _near_best(scores: Scores) -> list[tuple[str, bool | None, str]]:
    """auto against the best published method, stream by stream and counted."""
    rows: list[tuple[str, bool | None, str]] = []
    misses = 0
    for stream in scores.streams:
        pairs = {m: scores.pair(stream, "auto", m) for m in scores.published}
        gaps = {m: pair[0] - pair[1] for m, pair in pairs.items() if pair is not None}
        title = f"auto within 0.5 of the best published method: {stream}"
        if not gaps:
            rows.append((title, None, "not run"))
            continue
        best = min(gaps, key=lambda m: gaps[m])
        near = gaps[best] >= -MARGIN
        misses += not near
        rows.append((title, near, f"{gaps[best]:+.2f} against {best}"))
    complete = bool(rows) and all(passed is not None for _, passed, _ in rows)
    title = "auto within 0.5 of the best published method on all but two streams"
    verdict = misses <= EXCEPTIONS if complete or misses > EXCEPTIONS else None
    return [*rows, (title, verdict, f"{misses} misses")]


def _lead(scores: Scores) -> tuple[str, bool | None, str]:
    """Over the streams that all of them have run."""
    title = "auto, mean over the streams ≥ best published method + 5"
    methods = [m for m in scores.published if len(scores.common(["auto", m])) > 1]
    means = {}
    for method in methods:
        both = scores.common(["auto", method])
        if len(both) >= len(_shared(scores)):
            mine, theirs = (scores.over_streams(m, both) for m in ("auto", method))
            means[method] = (mine or 0.0) - (theirs or 0.0)
    if not means:
        return title, None, "not run"
    best = min(means, key=lambda m: means[m])
    return title, means[best] >= LEAD, f"{means[best]:+.2f} over {best}"


def _small_batches(
    scores: Scores, title: str, stream: str, margin: float
) -> tuple[str, bool | None, str]:
    one, other = scores.mean(stream, "stein"), scores.mean("cifar-128", "bn")
    if one is None or other is None:
        return title, None, "not run"
    return title, one >= other - margin, f"{one:.2f}, {other:.2f}"


def check_text(records: Records) -> str:
    words = {True: "pass", False: "FAIL", None: "open"}
    found = checks(records)
    lines = [f"{words[passed]}  {title}  ({seen})" for title, passed, seen in found]
    count = {word: sum(words[p] == word for _, p, _ in found) for word in words.values()}
    return "\n".join([*lines, ", ".join(f"{n} {word}" for word, n in count.items())])
