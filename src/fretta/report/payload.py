"""What the page knows about each run, small: what many runs share is told once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ..experiment.records import Record, canonical
from .commands import command, needs

# Of the code and the machine: shared by all that ran there. The rest is the run's own.
SHARED = (
    *("fretta", "commit", "dirty", "python", "torch", "numpy", "system", "machine", "processor"),
    *("cores", "gpu", "device", "threads"),
)


class Payload:
    """Runs by number, in each suite they belong to; cells refer to them."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._shared: dict[str, dict[str, int]] = {}
        self._values: dict[str, list[Any]] = {"groups": [], "provenance": []}
        self._number: dict[tuple[str, str], int] = {}  # by suite and key
        self.runs: list[dict[str, Any]] = []
        for record in records:
            self._number[str(record.tags.get("suite") or ""), record.key] = len(self.runs)
            self._number.setdefault(("", record.key), len(self.runs))  # of any suite
            self.runs.append(self._run(record))

    def _intern(self, kind: str, value: Any) -> int:
        known = self._shared.setdefault(kind, {})
        text = canonical(value)
        if text not in known:
            known[text] = len(self._values[kind])
            self._values[kind].append(value)
        return known[text]

    def _run(self, record: Record) -> dict[str, Any]:
        group = {
            "suite": record.tags.get("suite") or "",
            "case": record.tags.get("case") or "",
            "label": record.tags.get("label") or record.run["method"],
            "tuning": record.tags.get("tuning") or "",
            "run": {k: v for k, v in record.run.items() if k != "seed"},
            "settings": record.settings,
            "domains": [str(row.get("domain")) for row in record.rows],
            "command": command(record),
            "needs": needs(record),
        }
        facts = record.provenance
        return {
            "key": record.key,
            "group": self._intern("groups", group),
            "from": self._intern("provenance", {k: facts[k] for k in SHARED if k in facts}),
            "seed": record.run["seed"],
            "status": record.status,
            "accuracy": _rounded(record.overall.get("mean_over_domains")),
            "domains": [_rounded(row.get("accuracy")) for row in record.rows],
            "seconds": _rounded(record.overall.get("seconds")),
            "own": {k: v for k, v in facts.items() if k not in SHARED and v is not None},
            "error": record.error.strip()[-2000:],
        }

    def numbers(self, keys: Iterable[str], suite: str = "") -> str:
        """The runs of these keys as the suite calls them, or as any does."""
        found = [self._number.get((suite, k), self._number.get(("", k))) for k in keys]
        return " ".join(str(n) for n in found if n is not None)

    def json(self) -> str:
        """For a <script> of JSON: no sign in it can end the element or open another."""
        text = json.dumps(
            {"runs": self.runs, **self._values}, separators=(",", ":"), ensure_ascii=False
        )
        for sign in "<>&\u2028\u2029":
            text = text.replace(sign, f"\\u{ord(sign):04x}")
        return text


def _rounded(value: Any) -> float | None:
    return round(float(value), 5) if isinstance(value, int | float) else None
