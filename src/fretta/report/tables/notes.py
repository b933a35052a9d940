"""What stands below a table: what the marks mean there, and what all its rows share."""

from __future__ import annotations

from collections.abc import Sequence

from ..describe import DIRTY, ORACLE
from ..members import Setup
from ..paper import NOTES
from ..significance import Ranking, basis
from .table import Row

ALL_DIRTY = "All runs come from uncommitted code: they cannot be traced to a commit."


def mark_note(rankings: Sequence[Ranking]) -> str:
    """What the marks mean, and which test decided on them."""
    seen = {mark for r in rankings for mark in r.marks}
    if "best" not in seen:
        return ""
    parts = [
        "Bold: the highest mean",
        "†: not distinguishable from it" if "tie" in seen else "",
        "‡: not tested against it, no seed in common" if "untested" in seen else "",
    ]
    tests = [t for r in rankings for t in r.tests]
    how = f" Each row is tested against the bold one, at 5 %: {basis(tests)}." if tests else ""
    return f"{'; '.join(filter(None, parts))}.{how}"


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
