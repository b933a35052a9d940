"""Tables of docs/estimate.md, from what benchmarks/estimate.py and benchmarks/verdicts.py wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .committed import Evidence
from .prose import paragraph, signed
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


def _verdicts(evidence: Evidence, file: str = "verdicts", methods: Sequence[str] = ()) -> Rows:
    """On streams that no constant was chosen on; of these methods, or of all."""
    rows = [row for row in _rows(evidence, file) if row["part"] == "report"]
    return [row for row in rows if not methods or row["method"] in methods]


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
    return _table(_verdicts(evidence))


def auto_verdicts(evidence: Evidence) -> str:
    """Of the default method, with what was said wrongly."""
    rows = _verdicts(evidence, "verdicts-auto", ["auto"])
    shifted = [row for row in rows if row["shifted"]]
    estimated, true = (
        signed(100 * np.mean([row[key] for row in shifted])) for key in ("change", "true")
    )
    clear = [row for row in rows if row["true"] > CLEAR]
    told = sum(_word(row, "") is True for row in clear)
    lead = paragraph(
        f"**Gains of `auto` are estimated too low**: {estimated} points on shifted streams, where"
        f" the truth is {true}. Of {len(clear)} gains above {100 * CLEAR:.0f} points {told} are"
        f" told; the 90 % interval holds the truth in {_coverage(shifted)} of the shifted streams."
        " So silence says little about the default: a few labels say more."
    )
    return "\n\n".join([lead, _text(rows), _wrong_lines(rows), _table(rows)])


def _table(rows: Rows) -> str:
    """By data, shift and balance."""
    lines = []
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


MEANT = {"wrong": 2.0, "far": 2.0}  # percent of the verdicts; half-widths
WITH = {"": "Without labels", "source_": "With labeled source images"}


def _wrong(rows: Rows, prefix: str) -> Rows:
    """Claims that the truth contradicts."""
    claims = [r for r in rows if _word(r, prefix) is not None]
    return [r for r in claims if (r["true"] > 0) is not _word(r, prefix) or not r["true"]]


def _met(value: float, limit: float, unit: str = "") -> str:
    return f"at most {limit:g}{unit} were meant: {'met' if value <= limit else '**missed**'}"


def verdicts_text(evidence: Evidence) -> str:
    return _text(_verdicts(evidence))


def _text(rows: Rows) -> str:
    """The whole in a few sentences."""
    shares, images = ([r[key] for r in rows] for key in ("share", "images"))
    parts = [
        f"{len({r['stream'] for r in rows})} streams, {100 * min(shares):.0f} to"
        f" {100 * max(shares):.0f} % of the images in the largest class, {min(images)} to"
        f" {max(images)} images each."
    ]
    for prefix, title in WITH.items():
        claims = [r for r in rows if _word(r, prefix) is not None]
        wrong = _wrong(rows, prefix)
        share, far = 100 * len(wrong) / len(rows), max(_outside(r, prefix) for r in rows)
        of_claims = 100 * len(wrong) / max(len(claims), 1)
        parts.append(
            f"{title}: {len(claims)} of {len(rows)} verdicts claim help or harm, {len(wrong)} of"
            f" them wrongly ({of_claims:.1f} % of the claims, {share:.1f} % of all verdicts;"
            f" {_met(share, MEANT['wrong'], ' %')}); the truth"
            f" is at most {far:.2f} half-widths from the middle of the interval"
            f" ({_met(far, MEANT['far'])}), which holds it in {_coverage(rows, prefix)}."
        )
    return paragraph(" ".join(parts))


def wrong_list(evidence: Evidence) -> str:
    return _wrong_lines(_verdicts(evidence))


def _count(rows: Rows) -> str:
    return f"{len(rows)} verdict{'s' * (len(rows) > 1)}"


def _wrong_lines(rows: Rows) -> str:
    """What was said wrongly, and of what."""
    lines = []
    for prefix, title in WITH.items():
        groups: dict[str, Rows] = {}
        for row in _wrong(rows, prefix):
            domain = row["stream"].split(".")[2].rstrip("0123456789")
            said = "help" if _word(row, prefix) else "hurt"
            what = f"{TITLES[row['data']]} under {domain}, said to {said}"
            groups.setdefault(what, []).append(row)
        for what, group in groups.items():
            low, high = (signed(100 * end(r["true"] for r in group)) for end in (min, max))
            true = low if low == high else f"{low} to {high}"
            streams = len({r["stream"] for r in group})
            shares = sorted({f"{100 * r['share']:.0f}" for r in group}, key=int)
            lines.append(
                f"- {title}: {what}; the true change is {true} points. {_count(group)} on"
                f" {streams} stream{'s' * (streams > 1)}, largest class {', '.join(shares)} %."
            )
    return "\n".join(paragraph(line, indent="  ") for line in lines)


def uneven_text(evidence: Evidence) -> str:
    """Where the estimate for balanced classes is farthest from the truth, no shift at all."""
    row = max(
        (
            r
            for r in _verdicts(evidence)
            if (r["data"], r["shifted"], r["uneven"], r["method"]) == ("cifar10", False, True, "bn")
        ),
        key=lambda r: r["change"] - r["true"],
    )
    change, true, low, high = (signed(100 * row[key]) for key in ("change", "true", "low", "high"))
    return paragraph(
        "Capacity needs the shares of the classes, and a wrong guess turns the verdict around. For"
        f" example, clean CIFAR-10 images with {100 * row['share']:.0f} % in one class: taken for"
        " balanced, the source model is charged for most of them, and batch statistics spread them"
        f" over other classes. The estimate is {change} points where the truth is {true}. So the"
        f" interval, here {low} to {high}, covers every guess that the predictions allow:"
    )
