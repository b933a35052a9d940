"""Tables of docs/estimate.md, from what benchmarks/estimate.py and benchmarks/uneven.py wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .committed import Evidence
from .tables import DASH, markdown

Rows = list[dict[str, Any]]
SCORES = {  # column of the table: column of the file
    "estimate": "change",
    "mean confidence": "confidence",
    "-entropy": "-entropy",
    "4 ln E - H": "4 ln E - H",
    "-NRS": "-NRS",
}


def _rows(evidence: Evidence, name: str = "estimate") -> Rows:
    content = evidence.benchmark(name)
    return [dict(zip(content["columns"], row, strict=True)) for row in content["rows"]]


def _true(row: dict[str, Any]) -> float:
    return float(row["accuracy"] - row["source"])


def _groups(rows: Rows) -> Iterator[tuple[str, Rows]]:
    for name in dict.fromkeys(r["condition"] for r in rows):
        group = [r for r in rows if r["condition"] == name]
        if len(group) > 5:
            yield name, group
    for family in ("cifar", "pacs", "digits"):
        group = [r for r in rows if r["condition"].split("-")[0] == family]
        if group:
            yield f"**{family}, all**", group


def ranks_table(evidence: Evidence) -> str:
    """Rank correlation with the true change: over all runs, and the mean within domains."""
    from scipy.stats import kendalltau, spearmanr

    lines = []
    for label, group in _groups(_rows(evidence)):
        truth = np.array([_true(r) for r in group])
        line = [label, str(len(group))]
        for column in SCORES.values():
            values = np.array([np.nan if r[column] is None else r[column] for r in group], float)
            if np.isnan(values).any():
                line.append(DASH)
                continue
            inside = []
            for where in sorted({(r["condition"], r["domain"]) for r in group}):
                mine = np.array([(r["condition"], r["domain"]) == where for r in group])
                if np.ptp(truth[mine]) > 0 and np.ptp(values[mine]) > 0:
                    inside.append(spearmanr(values[mine], truth[mine])[0])
            rho, tau = spearmanr(values, truth)[0], kendalltau(values, truth)[0]
            line.append(f"{rho:.2f} / {tau:.2f}; {np.mean(inside):.2f}")
        lines.append(line)
    return markdown(["", "runs", *SCORES], lines)


def errors_table(evidence: Evidence) -> str:
    """The estimate against the truth, in points; last what is called collapsed."""
    rows, lines = _rows(evidence), []
    for label, group in [*_groups(rows), ("called collapsed", [r for r in rows if r["collapsed"]])]:
        error = np.array([r["change"] - _true(r) for r in group])
        level = np.array([r["adapted"] - r["accuracy"] for r in group])
        # 1e-4: an interval may end where the truth is, and the numbers are rounded
        held = [r["low"] - 1e-4 <= _true(r) <= r["high"] + 1e-4 for r in group]
        decided = [r for r in group if r["helps"] is not None]
        right = sum((_true(r) > 0) == r["helps"] and _true(r) != 0 for r in decided)
        lines.append([label, f"{100 * np.abs(error).mean():.1f}", f"{100 * error.mean():+.1f}"])
        lines[-1] += [f"{100 * np.abs(level).mean():.1f}", f"{100 * np.mean(held):.0f} %"]
        lines[-1] += [
            f"{len(decided)} of {len(group)}",
            f"{right} of {len(decided)}" if decided else DASH,
        ]
    head = ["", "error of change", "bias", "error of level", "coverage", "says something", "right"]
    return markdown(head, lines)


def others_table(evidence: Evidence) -> str:
    """Other estimators, on the CIFAR-10 runs."""
    rows = [
        [name, *(f"{100 * value:.1f}" for value in pair)]
        for name, pair in evidence.benchmark("estimate")["others"].items()
    ]
    return markdown(["", "error of change", "error of level"], rows)


def uneven_table(evidence: Evidence) -> str:
    """Right verdicts without the check for uneven classes, with it, and with the true shares."""
    rows, lines = _rows(evidence, "uneven"), []
    for group in dict.fromkeys(r["group"] for r in rows):
        mine = [r for r in rows if r["group"] == group]
        lines.append([group, str(len(mine)), str(sum(r["uneven"] for r in mine))])
        for column, word in (
            *(("unchecked", True), ("helps", True)),
            *(("prior", True), ("prior", False)),
        ):
            chosen = [r for r in mine if r[column] is word]
            right = sum((r["true"] > 0) is word and r["true"] != 0 for r in chosen)
            lines[-1].append(f"{right} of {len(chosen)}" if chosen else DASH)
    head = ["streams", "runs", "look uneven", "helps, unchecked", "helps"]
    return markdown([*head, "helps, shares given", "hurts, shares given"], lines)
