"""What the records say of one method: the results on its page of the site."""

from __future__ import annotations

from .committed import Evidence, by_seed, mean
from .streams import Scores, costs_of
from .tables import BENCHMARKS, MARGIN, WORSE, markdown, percent, points

MORE = {"CIFAR-10-C, correlated": ("cifar10c-shared-correlated", "")}


def verdict_of(evidence: Evidence, scores: Scores, method: str) -> str:
    """Where it helped and where it hurt, in a few sentences."""
    pairs = {name: scores.pair(name, method, "source") for name in scores.streams}
    gaps = {name: pair[0] - pair[1] for name, pair in pairs.items() if pair is not None}
    if method == "source" or not gaps:
        return ""
    below = sorted((name for name in gaps if gaps[name] < -MARGIN), key=lambda name: gaps[name])
    above = sum(gap > MARGIN for gap in gaps.values())
    worst = "; ".join(f"{scores.titles[name]} ({gaps[name]:+.1f})" for name in below[:3])
    text = f"On {len(below)} of {len(gaps)} measured streams it is more than half a point below"
    text += f" the source model{f', most on {worst}' if below else ''}. On {above} it is more than"
    text += " half a point above."
    cost = costs_of(evidence).get(method)
    return text if cost is None else f"{text} A step takes {cost:.1f} × the source model's."


def streams_of(scores: Scores, method: str) -> str:
    """Stream by stream against the source, worst first; nothing where nothing was run."""
    rows: list[tuple[float, list[str]]] = []
    for name in scores.streams:
        pair = scores.pair(name, method, "source")
        if pair is None:
            continue
        gap = pair[0] - pair[1]
        seeds = scores.common_seeds(name, method, "source")
        mark = f" {WORSE}" if gap < -MARGIN else ""
        cells = [scores.titles[name], f"{pair[0]:.1f}{mark}", f"{pair[1]:.1f}", f"{gap:+.1f}"]
        rows.append((gap, [*cells, str(len(seeds))]))
    rows.sort(key=lambda row: row[0])
    head = ["stream", f"`{method}`", "`source`", "difference", "seeds"]
    return markdown(head, [row for _, row in rows]) if rows else ""


def benchmarks_of(evidence: Evidence, method: str) -> str:
    """The suites, both variants; nothing where nothing was run."""
    rows = []
    for title, (suite, case) in {**BENCHMARKS, **MORE}.items():
        for label in (method, f"{method} (released)"):
            if label not in evidence.labels(suite, case):
                continue
            scores = evidence.accuracy(suite, label, case)
            if mean(scores) != mean(scores):
                continue
            bn = evidence.accuracy(suite, "bn", case)
            over = "–" if method == "bn" else points(scores, bn)
            rows.append([title, f"`{label}`", percent(scores), over, str(len(by_seed(scores)))])
    return markdown(["benchmark", "label", "accuracy %", "over bn", "seeds"], rows) if rows else ""
