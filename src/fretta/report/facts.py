"""Counts, problems and provenance in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ..experiment.records import Record
from .data import ReportData
from .payload import Payload

COLUMNS = ("fretta", "commit", "code", "python", "torch", "system", "processor", "device")


def summary_of(data: ReportData) -> str:
    """One line: how much there is, and what is wrong with it."""
    records = data.runs
    failed = sum(r.status != "done" for r in records)
    dirty = sum(bool(r.provenance.get("dirty")) for r in records)
    oracle = sum(r.tags.get("tuning") == "oracle" for r in records)
    suites = len({r.tags.get("suite") for r in data.records})
    times = [int(t) for r in records if (t := r.provenance.get("finished"))]
    parts = [
        f"{_many(len(records), 'run')} in {_many(suites, 'suite')}",
        f"{failed} failed" if failed else "",
        f"{_many(len(data.damaged), 'file')} damaged" if data.damaged else "",
        f"{dirty} from uncommitted code" if dirty else "",
        f"{oracle} tuned on target labels" if oracle else "",
        _period(min(times), max(times)) if times else "",
    ]
    return ", ".join(filter(None, parts)) + "."


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def _period(first: int, last: int) -> str:
    start, end = (datetime.fromtimestamp(t, UTC) for t in (first, last))
    if start.date() != end.date():
        return f"made {start:%Y-%m-%d} to {end:%Y-%m-%d}"
    hours = dict.fromkeys(f"{t:%H:%M}" for t in (start, end))
    return f"made on {start:%Y-%m-%d}, {' to '.join(hours)} UTC"


def last_line(record: Record) -> str:
    """The message at the end of a traceback."""
    lines = record.error.strip().splitlines()
    return lines[-1][:300] if lines else "no message"


def problems_of(data: ReportData, payload: Payload) -> list[dict[str, Any]]:
    """Failed runs and damaged files."""
    found: list[dict[str, Any]] = [
        {"kind": "Damaged:", "name": message, "text": "", "run": None} for message in data.damaged
    ]
    for record in data.runs:
        if record.status != "done":
            name = (
                f"{record.tags.get('suite') or 'run'}, {record.tags.get('case') or ''}: "
                f"{record.tags.get('label') or record.run['method']}, seed {record.run['seed']}"
            )
            number = payload.numbers([record.key], str(record.tags.get("suite") or ""))
            found.append(
                {"kind": "Failed:", "name": name, "text": last_line(record), "run": number}
            )
    return found


def provenance_of(data: ReportData) -> dict[str, Any] | None:
    """One line per combination, with the number of runs."""
    counts: dict[tuple[str, ...], int] = {}
    for record in data.runs:
        facts = record.provenance
        dirty = facts.get("dirty")
        code = "unknown" if dirty is None else "uncommitted changes" if dirty else "as committed"
        known = {**facts, "commit": str(facts.get("commit") or "–")[:10], "code": code}
        line = tuple(str(known.get(name) or "–") for name in COLUMNS)
        counts[line] = counts.get(line, 0) + 1
    if not counts:
        return None
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    return {"header": ["runs", *COLUMNS], "rows": [[str(n), *line] for line, n in ordered]}
