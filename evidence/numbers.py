"""The committed records, by suite, case and label. Every number of the pages comes from here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fretta.records import Record
from fretta.report.members import Member, Setup
from fretta.report.paper import paper_value
from fretta.report.setups import setups_of
from fretta.report.significance import Series, compare
from fretta.report.tables.domains import CORRUPTIONS, SPANS
from fretta.results import mean_and_deviation
from fretta.store import Store

__all__ = ["CORRUPTIONS", "SPANS", "Evidence", "compare", "mean", "paper_value"]

METHODS = ("source", "bn", "tent", "eta", "eata", "sar", "tsd", "tipi", "tea", "s-fret", "g-fret")
VARIANTS = ("eata", "sar", "tsd", "tipi", "s-fret", "g-fret")  # those with a released variant


def mean(series: Series) -> float:
    return mean_and_deviation([s.value for s in series.values()])[0]


class Evidence:
    """A store of results and, in its folder `tuning`, one of trials."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = list(Store(str(folder)).records())
        self.trials = list(Store(str(folder / "tuning")).records())
        self.analyses: dict[str, dict[str, Any]] = {
            str(a["name"]): a for a in Store(str(folder)).analyses()
        }
        self.setups: dict[tuple[str, str], Setup] = {}
        for setup in setups_of(self.records):
            self.setups.setdefault((setup.suite, setup.name), setup)

    def setup(self, suite: str, case: str = "") -> Setup:
        """The setup of a suite, or of one of its cases."""
        found = [s for (name, _), s in self.setups.items() if name == suite]
        return self.setups[suite, case] if case else found[0]

    def has(self, suite: str) -> bool:
        return any(name == suite for name, _ in self.setups)

    def member(self, suite: str, label: str, case: str = "") -> Member | None:
        found = [m for m in self.setup(suite, case).members if m.label == label and m.done]
        return found[0] if found else None

    def labels(self, suite: str, case: str = "") -> list[str]:
        """Rows in the order of the field; released variants after the method they belong to."""
        there = [m.label for m in self.setup(suite, case).members if m.done]
        known = [x for m in METHODS for x in (m, f"{m} (released)") if x in there]
        return known + [x for x in there if x not in known]

    def accuracy(
        self,
        suite: str,
        label: str,
        case: str = "",
        domains: Sequence[str] | None = None,
        measure: str = "accuracy",
    ) -> Series:
        """The mean over domains, by seed; empty if it was not run."""
        member = self.member(suite, label, case)
        if member is None:
            return {}
        return member.mean(domains or self.setup(suite, case).domains, measure)

    def overall(self, suite: str, label: str, case: str = "", measure: str = "accuracy") -> Series:
        """Over all images of the stream, by seed."""
        from fretta.report.significance import Sample

        member = self.member(suite, label, case)
        runs = [] if member is None else member.done
        return {r.run["seed"]: Sample(float(r.overall[measure])) for r in runs}

    def trial(self, suite: str, method: str, **wanted: Any) -> list[Record]:
        """Trials of a method on a suite; `wanted` are settings, or `limit`, `tuning`, `domains`."""
        return [
            r
            for r in self.trials
            if r.tags["suite"].removesuffix("/tune") == suite and r.run["method"] == method
            if r.status == "done" and all(_of(r, k) == v for k, v in wanted.items())
        ]


def _of(record: Record, name: str) -> Any:
    if name in ("limit", "domains"):
        return record.run["order_options"].get(name)
    if name == "corruption":
        return record.run["data"].get(name)
    return record.tags.get(name) if name == "tuning" else record.settings.get(name)
