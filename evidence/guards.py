"""Tables of docs/guard.md, from what benchmarks/guard.py wrote to `benchmarks/`."""

from __future__ import annotations

from typing import Any

from .committed import Evidence
from .tables import markdown

PARTS = ("stream", "end")


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
    """Streams to be left alone; the corruptions one by one as one row."""
    rows, single = [], []
    for row in evidence.benchmark("guard-healthy")["healthy"]:
        if not row["stream"].startswith(("digits", "cifar10")):
            single.append(row)
            continue
        rows.append([row["stream"], row["method"]])
        rows[-1] += [f"{row['without']:.2f}", f"{row['rollback']:.2f}", _acted([row])]
    means = [sum(r[k] for r in single) / len(single) for k in ("without", "rollback")]
    title = f"{len(single)} corruptions of digits, each alone"
    rows.append([title, single[0]["method"], *(f"{m:.2f}" for m in means), _acted(single)])
    return markdown(["stream", "method", "without", "with guard", "batches acted on"], rows)


def _acted(rows: list[dict[str, Any]]) -> str:
    return "/".join(str(sum(r[k] for r in rows)) for k in ("acted", "batches"))


DECAYING = {  # records of streams on which learning decays
    "TSD": "guard-decay-tsd",
    "TSD, another seed": "guard-decay-tsd-fresh",
    "Tent, 10,000 images": "guard-decay-tent",
}


def decay_table(evidence: Evidence) -> str:
    """With the guard against test BN, as far as the runs went."""
    runs = [evidence.benchmark(name)["decay"] for name in DECAYING.values()]
    rows = []
    for name in [row["corruption"] for row in max(runs, key=len)]:
        found = [next((row for row in run if row["corruption"] == name), None) for run in runs]
        rows.append([name, *(_against(None if row is None else [row]) for row in found)])
    rows.append(["mean of these", *map(_against, runs)])
    rows.append(["batches acted on", *map(_acted, runs)])
    return markdown(["corruption", *(f"{title}: bn, guarded" for title in DECAYING)], rows)


def _against(rows: list[dict[str, Any]] | None) -> str:
    if not rows:
        return ""
    bn, guarded = (sum(row[k] for row in rows) / len(rows) for k in ("bn", "rollback"))
    return f"{bn:.1f}, {guarded:.1f} ({guarded - bn:+.1f})"


def cost_table(evidence: Evidence) -> str:
    found = evidence.benchmark("guard-cost")
    rows = [
        [method, f"{found[f'{method} seconds']:.2f}"]
        + [f"{100 * found[f'{method} {what}']:+.1f} %" for what in ("guard", "callbacks")]
        for method in ("tent", "tsd")
    ]
    return markdown(["", "step, s", "with the guard", "with callbacks alone"], rows)
