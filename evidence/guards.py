"""Tables of docs/guard.md, from the suites, benchmarks/guard.py and benchmarks/streams.py."""

from __future__ import annotations

from typing import Any

from .committed import Evidence, by_seed
from .prose import paragraph
from .streams import Scores
from .tables import DASH, markdown, percent, points

PARTS = ("stream", "end")


def losses_text(evidence: Evidence) -> str:
    """Where the guarded stream, or the statistics it is left to, did worse than the source."""
    content = evidence.benchmark("guard-fresh")
    lost = [row for row in content["laboratory"] if row["rollback stream worst"] < 0]
    lines = [
        f"- Stream `{row['stream']}`: on the worst of {len(content['seeds'])} fresh seeds the"
        f" guarded stream loses {-row['rollback stream worst']:.1f} points against the source"
        " model (table below)."
        for row in lost
    ]
    scores, noisy = Scores(evidence.lines("streams")), "noise-70"
    gaps = [
        100 * (bn["accuracy"] - scores.runs[noisy, "source"][seed]["accuracy"])
        for seed, bn in scores.runs[noisy, "bn"].items()
    ]
    lines.append(
        "- A shifted stream with uneven classes can be left to batch statistics. With 70 % of one"
        f" class under Gaussian noise they lose {-min(gaps):.0f} points against the source model"
        f" on the worst of {len(gaps)} seeds and gain {max(gaps):.0f} on the best"
        " ([auto.md](auto.md); unguarded)."
    )
    return "\n".join(paragraph(line, indent="  ") for line in lines)


def laboratory_table(evidence: Evidence) -> str:
    """Streams that do harm, without and with the guard."""
    rows = []
    for row in evidence.benchmark("guard")["laboratory"]:
        rows.append([row["stream"], row["method"]])
        rows[-1].append(", ".join(f"{row[f'source {p}']:.1f}" for p in PARTS))
        rows[-1] += [_cell(row, label) for label in ("without", "rollback")]
        rows[-1].append(f"{row['rollback acted']}/{row['rollback batches']}")
    head = ["stream", "method", "source: stream, end", "without guard: stream, end"]
    return markdown([*head, "rollback: stream, end", "batches acted on"], rows)


def _cell(row: dict[str, Any], label: str) -> str:
    return ", ".join(f"{row[f'{label} {p}']:.1f} ({row[f'{label} {p} worst']:+.1f})" for p in PARTS)


def fresh_table(evidence: Evidence) -> str:
    """Seeds that no threshold was set on: the worst of them."""
    rows = [
        [row["stream"], row["method"], *(f"{row[f'rollback {p} worst']:+.1f}" for p in PARTS)]
        for row in evidence.benchmark("guard-fresh")["laboratory"]
    ]
    return markdown(["stream", "method", "rollback, worst seed: stream", "end"], rows)


def healthy_table(evidence: Evidence) -> str:
    """Streams to be left alone, with the present rules where they were run; the corruptions one by
    one as one row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name in ("guard-healthy-digits", "guard-healthy"):
        content = evidence.benchmark(name)
        kinds: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in content["healthy"]:
            together = not row["stream"].startswith(("digits", "cifar10"))
            title = "corruptions of digits, each alone" if together else row["stream"]
            kinds.setdefault((title, row["method"]), []).append(row)
        for key, group in kinds.items():
            means = [sum(r[k] for r in group) / len(group) for k in ("without", "rollback")]
            cells = [*(f"{m:.2f}" for m in means), _acted(group)]
            rows.setdefault(key, [*key, content["provenance"]["commit"][:7], *cells])
    head = ["stream", "method", "commit", "without", "with guard", "batches acted on"]
    return markdown(head, list(rows.values()))


def _acted(rows: list[dict[str, Any]]) -> str:
    return "/".join(str(sum(r[k] for r in rows)) for k in ("acted", "batches"))


GUARDED = "cifar10c-shared-guarded"
UNGUARDED = {"2,000 images": "cifar10c-shared", "all images": "cifar10c-shared-full"}  # by case


def decay_table(evidence: Evidence) -> str:
    """The same streams and seeds with and without the guard, beside batch statistics alone."""
    rows = []
    for case, suite in UNGUARDED.items():
        bn = evidence.accuracy(suite, "bn")
        for method in evidence.labels(GUARDED, case):
            with_, without = (
                evidence.accuracy(GUARDED, method, case),
                evidence.accuracy(suite, method),
            )
            same, base = (of[of.index.isin(with_.index)] for of in (without, bn))
            rows.append([case, method, percent(base), percent(same), percent(with_)])
            rows[-1] += [points(with_, same), points(with_, base), str(len(by_seed(with_)))]
    head = ["per corruption", "method", "bn", "without a guard", "with the guard"]
    return markdown([*head, "minus without", "minus bn", "seeds"], rows)


def cost_table(evidence: Evidence) -> str:
    found = evidence.benchmark("guard-cost")
    rows = [
        [method, f"{found[f'{method} seconds']:.2f}"]
        + [f"{100 * found[f'{method} {what}']:+.1f} %" for what in ("guard", "callbacks")]
        for method in ("tent", "tsd")
    ]
    return markdown(["", "step, s", "with the guard", "with callbacks alone"], rows)


SMALL = ("digits-64", "digits-8", "cifar-128", "cifar-8", "cifar-1")
SHOWN = ("source", "bn", "tent", "g-fret", "stein", "auto")


def small_batches_table(evidence: Evidence) -> str:
    """Accuracy on streams that differ in the size of their batches."""
    scores = Scores(evidence.lines("streams"))
    rows = []
    for stream in SMALL:
        images = next(iter(scores.runs[stream, "source"].values()))["images"]
        means = [scores.mean(stream, method) for method in SHOWN]
        cells = [DASH if value is None else f"{value:.1f}" for value in means]
        rows.append([scores.titles[stream], f"{images:,}", *cells])
    return markdown(["stream, batch size", "images", *(f"`{m}`" for m in SHOWN)], rows)
