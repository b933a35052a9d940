"""What stands below a table: what the marks mean there, and what all its rows share."""

from __future__ import annotations

from collections.abc import Sequence

from ..describe import DIRTY, ORACLE
from ..members import Setup
from ..paper import NOTES
from ..significance import Ranking
from .table import Row

ALL_DIRTY = "All runs come from uncommitted code: they cannot be traced to a commit."


def rank_note(rankings: Sequence[Ranking], what: str = "") -> str:
    """Of the column that decides, the last ranked one: how sure its best is."""
    decided = [r for r in rankings if any(r.marks)]
    if not decided:
        return ""
    last = decided[-1]
    basis = _basis(last)
    where = f"{what}: " if what else ""
    ties = last.marks.count("tie")
    if ties:
        return f"{where}the best is within noise: {ties} methods cannot be told apart ({basis})."
    if not last.alone:
        return f"{where}the highest could not be tested against all others: seeds differ."
    p = "" if last.p is None else f", p {_p(last.p)} against the second"
    return f"{where}the best is beyond noise ({basis}{p})."


def _basis(ranking: Ranking) -> str:
    if ranking.most <= 1:
        return "one seed: z-test on the images"
    if ranking.n == ranking.most:
        return f"paired t-test over {ranking.n} seeds"
    return f"paired tests over {ranking.n} to {ranking.most} seeds"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def legend(rankings: Sequence[Ranking]) -> str:
    seen = {m for r in rankings for m in r.marks}
    parts = [
        "bold: best" if "best" in seen else "",
        "bold†: best or not distinguishable from it (5 %, Holm)" if "tie" in seen else "",
        "bold‡: highest, untested" if "top" in seen else "",
        "underlined: second" if "second" in seen else "",
    ]
    text = "; ".join(filter(None, parts))
    return f"{text[0].upper()}{text[1:]}." if text else ""


def paper_notes(setup: Setup) -> list[str]:
    """What to know before comparing with the paper."""
    limit = (setup.run.get("order_options") or {}).get("limit")
    if not setup.paper:
        return []
    short = f"Only {limit} images per domain: the paper used all, compare with care."
    return [*([short] if limit else []), *filter(None, [NOTES.get(setup.paper)])]


def shared_flags(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[str]]:
    """Flags that all rows carry, as notes: those that tell rows apart stand out then."""
    notes = {
        DIRTY: ALL_DIRTY,
        ORACLE: "All settings were tuned on target labels (oracle).",
    }
    found = tuple(f for f in notes if rows and all(f in row.flags for row in rows))
    return found, [notes[f] for f in found]
