"""Sentences of docs/analysis.md, from the analyses and the records."""

from __future__ import annotations

from .committed import Evidence, mean
from .pages import LOOKED_AT, redundancies
from .prose import paragraph
from .tables import there

LEARNING = ("tent", "s-fret", "g-fret")


def streams_text(evidence: Evidence) -> str:
    """What the table of redundancy against severity was measured on."""
    found = {
        title: evidence.analyses[f"redundancy-{name}"]
        for name, title in LOOKED_AT.items()
        if f"redundancy-{name}" in evidence.analyses
    }
    each = "; ".join(
        f"{title}: {a['limit']} images each, batches of {a['batch_size']}"
        for title, a in found.items()
    )
    return paragraph(
        f"**Redundancy against severity.** Mean over the corruptions ({each}), one seed. Each"
        " severity is one stream in which every method starts afresh (`evidence/run.sh` has the"
        " commands; the points are in `evidence/analyses`):"
    )


def _values(evidence: Evidence, measure: str) -> dict[str, dict[str, float]]:
    """By benchmark and method; benchmarks where all of these were run."""
    methods, found = ("source", "bn", *LEARNING), {}
    for name, (suite, case) in there(evidence).items():
        scores = {m: evidence.accuracy(suite, m, case, None, measure) for m in methods}
        if not any(s.empty for s in scores.values()):
            found[name] = {m: mean(s) for m, s in scores.items()}
    return found


def _named(benchmarks: list[str]) -> str:
    return "; ".join(f"*{name}*" for name in benchmarks) or "none"


def read_off_list(evidence: Evidence) -> str:
    """What the tables say, the unexpected first."""
    nrs, accuracy = (_values(evidence, name) for name in ("nrs_after", "accuracy"))
    above = [name for name, v in nrs.items() if v["tent"] > v["bn"]]
    below = [name for name in nrs if name not in above]

    def mostly(values: dict[str, dict[str, float]]) -> str:
        moved = [
            abs(v["bn"] - v["source"]) > max(abs(v[m] - v["bn"]) for m in LEARNING)
            for v in values.values()
        ]
        return f"{sum(moved)} of {len(moved)}"

    worst = []
    for title, points in redundancies(evidence).items():
        mine = [p for p in points if p["method"] == "source"]
        (clean,) = [p["nrs"] for p in mine if not p["severity"]]
        p = min(mine, key=lambda p: float(p["accuracy"]))
        worst.append(
            f"{title} under {p['corruption']} {p['severity']:.0f}: accuracy"
            f" {100 * p['accuracy']:.1f} %, NRS {p['nrs']:.3f}, on clean images {clean:.3f}"
        )
    lines = [
        "- `tent`, which knows nothing of redundancy, moves NRS too: below that of `bn` on"
        f" {_named(below)}, above it on {_named(above)}.",
        "- The statistics of the batch (`bn`, no learning) move accuracy by more than learning adds"
        f" on {mostly(accuracy)} benchmarks, and NRS on {mostly(nrs)}.",
        "- A low NRS alone does not say that features are good. Where the source model is least"
        f" accurate: {'; '.join(worst)}.",
    ]
    return "\n".join(paragraph(line, indent="  ") for line in lines)
