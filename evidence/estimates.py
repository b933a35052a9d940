"""Tables of docs/estimate.md, from what benchmarks/estimate.py and benchmarks/verdicts.py wrote."""

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
        lines.append([label, str(len(group)), f"{100 * np.abs(error).mean():.1f}"])
        lines[-1] += [f"{100 * error.mean():+.1f}", f"{100 * np.abs(level).mean():.1f}"]
    head = ["", "runs", "error of change", "bias", "error of level"]
    return markdown(head, lines)


def others_table(evidence: Evidence) -> str:
    """Other estimators, on the CIFAR-10 runs."""
    rows = [
        [name, *(f"{100 * value:.1f}" for value in pair)]
        for name, pair in evidence.benchmark("estimate")["others"].items()
    ]
    return markdown(["", "error of change", "error of level"], rows)


# ---- verdicts -----------------------------------------------------------------------------------


TITLES = {"cifar10": "CIFAR-10", "digits": "digits", "pacs": "PACS"}
CLEAR = 0.1  # a change of accuracy that one would want to be told


def _verdicts(evidence: Evidence, part: str) -> Rows:
    return [row for row in _rows(evidence, "verdicts") if row["part"] == part]


def _word(row: dict[str, Any], prefix: str) -> bool | None:
    """Does it claim help (True) or harm (False)?"""
    return {"helps": True, "hurts": False, "collapsed": False}.get(row[f"{prefix}verdict"])


def _said(rows: Rows, word: bool, prefix: str = "") -> str:
    """Right claims of all such claims."""
    said = [row for row in rows if _word(row, prefix) is word]
    right = sum((row["true"] > 0) is word and row["true"] != 0 for row in said)
    return f"{right} of {len(said)}" if said else DASH


def _outside(row: dict[str, Any], prefix: str = "") -> float:
    """How far the truth is from the middle of the interval, in halves of its width."""
    low, high = row[f"{prefix}low"], row[f"{prefix}high"]
    distance = abs(row["true"] - (low + high) / 2)
    return float(distance / max((high - low) / 2, 1e-4)) if distance > 1e-4 else 0.0


def _coverage(rows: Rows, prefix: str = "") -> str:
    held = [r[f"{prefix}low"] - 1e-4 <= r["true"] <= r[f"{prefix}high"] + 1e-4 for r in rows]
    return f"{100 * np.mean(held):.0f} %"


def verdicts_table(evidence: Evidence) -> str:
    """Streams that no constant was chosen on, by data, shift and balance."""
    rows, lines = _verdicts(evidence, "report"), []
    for data, title in TITLES.items():
        for shifted in (False, True):
            for uneven in (False, True):
                wanted = data, shifted, uneven
                group = [r for r in rows if (r["data"], r["shifted"], r["uneven"]) == wanted]
                if not group:
                    continue
                name = f"{title}, {'shifted' if shifted else 'clean'}"
                name += f", {'uneven' if uneven else 'even'}"
                streams = len({r["stream"] for r in group})
                clear = [r for r in group if r["true"] > CLEAR]
                told = sum(_word(r, "") is True for r in clear)
                lines.append([name, str(streams), str(len(group)), _coverage(group)])
                lines[-1] += [f"{max(map(_outside, group)):.2f}", _said(group, True)]
                lines[-1] += [_said(group, False), f"{told} of {len(clear)}" if clear else DASH]
                lines[-1] += [_coverage(group, "source_"), _said(group, True, "source_")]
                lines[-1].append(_said(group, False, "source_"))
    head = ["", "streams", "verdicts", "coverage", "farthest", "helps", "hurts", "clear gains told"]
    return markdown([*head, "source: coverage", "source: helps", "source: hurts"], lines)


def verdicts_text(evidence: Evidence) -> str:
    """The whole in two sentences."""
    rows = _verdicts(evidence, "report")
    streams = len({r["stream"] for r in rows})
    parts = []
    for prefix, title in (("", "Without labels"), ("source_", "With labeled source images")):
        claims = [r for r in rows if _word(r, prefix) is not None]
        wrong = [r for r in claims if (r["true"] > 0) is not _word(r, prefix) or not r["true"]]
        far = max(_outside(r, prefix) for r in rows)
        parts.append(
            f"{title}: {len(claims)} of {len(rows)} verdicts claim help or harm, {len(wrong)} of"
            f" them wrongly ({100 * len(wrong) / len(rows):.1f} % of all); the truth is at most"
            f" {far:.2f} half-widths from the middle of the interval, which holds it in"
            f" {_coverage(rows, prefix)}."
        )
    return f"{streams} streams. " + " ".join(parts)
