"""The committed records, by suite, case and label. Every number of the pages comes from here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fretta.experiment.records import Record
from fretta.experiment.results import mean_and_deviation
from fretta.experiment.store import Store
from fretta.report.data import ReportData
from fretta.report.members import Member, Setup
from fretta.report.paper import paper_value
from fretta.report.setups import setups_of
from fretta.report.shipped import KNOWN as METHODS
from fretta.report.significance import Sample, Series, compare, mean_of
from fretta.report.tables.domains import CORRUPTIONS, SPANS

__all__ = [
    "CORRUPTIONS",
    "METHODS",
    "SPANS",
    "VARIANTS",
    "Evidence",
    "compare",
    "mean",
    "paper_value",
]

VARIANTS = ("eata", "sar", "tsd", "tipi", "s-fret", "g-fret")  # those with a released variant


def mean(series: Series) -> float:
    return mean_and_deviation([s.value for s in series.values()])[0]


class Evidence:
    """A store of results and, in its folder `tuning`, one of trials."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        data = ReportData.read(Store(str(folder)))
        if data.damaged:
            raise SystemExit("\n".join(data.damaged))
        self.records = data.records  # one that two suites share once for each
        self.runs = data.runs
        self.trials = list(Store(str(folder / "tuning")).records())
        self.analyses = {str(a["name"]): a for a in data.analyses}
        self.setups: dict[tuple[str, str], list[Setup]] = {}
        for setup in setups_of(self.records, data.batches):
            self.setups.setdefault((setup.suite, setup.name), []).append(setup)

    def of(self, suite: str, case: str = "") -> list[Setup]:
        """The setups of a suite, or of one of its cases or domains. Domains that were cut to
        another number of images are setups of their own."""
        return [
            setup
            for (name, which), found in self.setups.items()
            for setup in found
            if name == suite and (case in ("", which) or case in setup.domains)
        ]

    def domains(self, suite: str, case: str = "") -> list[str]:
        """What a mean is over, unless said."""
        if any(case in setup.domains for setup in self.of(suite, case)):
            return [case]
        return list(dict.fromkeys(d for s in self.of(suite, case) for d in s.domains))

    def members(self, suite: str, label: str, case: str = "") -> list[Member]:
        return [m for s in self.of(suite, case) for m in s.members if m.label == label and m.done]

    def labels(self, suite: str, case: str = "") -> list[str]:
        """Rows in the order of the field; released variants after the method they belong to."""
        there = [m.label for s in self.of(suite, case) for m in s.members if m.done]
        known = [x for m in METHODS for x in (m, f"{m} (released)") if x in there]
        return known + [x for x in dict.fromkeys(there) if x not in known]

    def accuracy(
        self,
        suite: str,
        label: str,
        case: str = "",
        domains: Sequence[str] | None = None,
        measure: str = "accuracy",
    ) -> Series:
        """The mean over domains, by seed; empty if it was not run on all of them."""
        each = [
            {
                k: v
                for m in self.members(suite, label, case)
                for k, v in m.domain(d, measure).items()
            }
            for d in domains or self.domains(suite, case)
        ]
        return mean_of(each)

    def overall(self, suite: str, label: str, case: str = "", measure: str = "accuracy") -> Series:
        """Over all images of the stream, by seed."""
        runs = [r for m in self.members(suite, label, case) for r in m.done]
        return {r.run["seed"]: Sample(float(r.overall[measure])) for r in runs}

    def benchmark(self, name: str) -> dict[str, Any]:
        """What a script of benchmarks/ wrote."""
        text = (self.folder / "benchmarks" / f"{name}.json").read_text(encoding="utf-8")
        content: dict[str, Any] = json.loads(text)
        return content

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
