"""The committed records, by suite, case and label. Every number of the pages comes from here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pandas import DataFrame, MultiIndex, concat

from fretta.experiment.records import Record
from fretta.experiment.store import Store
from fretta.report.data import ReportData
from fretta.report.palette import CORRUPTIONS
from fretta.report.paper import paper_value
from fretta.report.setups import Setup, setups_of
from fretta.report.significance import compare
from fretta.report.suites import KNOWN as METHODS
from fretta.report.tables import SPANS

__all__ = ["CORRUPTIONS", "METHODS", "SPANS", "Evidence", "by_seed", "compare", "mean"]
__all__ += ["VARIANTS", "paper_value"]

NOTHING = DataFrame(  # the scores of what was not run
    {name: [] for name in ("value", "images", "right", "sizes")},
    index=MultiIndex.from_arrays([[], []], names=["seed", "domain"]),
)
VARIANTS = ("eata", "sar", "tsd", "tipi", "s-fret", "g-fret")  # those with a released variant


def by_seed(scores: DataFrame) -> Any:
    """The mean over domains, a Series."""
    return scores["value"].groupby("seed").mean()


def mean(scores: DataFrame) -> float:
    return float(by_seed(scores).mean())


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
        self.setups = setups_of(self.records, data.batches)
        self._scores: dict[tuple[Any, ...], DataFrame] = {}

    def of(self, suite: str, case: str = "") -> list[Setup]:
        """The setups of a suite, or of one of its cases or domains. Domains that were cut to
        another number of images are setups of their own."""
        return [
            s
            for s in self.setups
            if s.suite == suite and (case in ("", s.name) or case in s.domains)
        ]

    def domains(self, suite: str, case: str = "") -> list[str]:
        """What a mean is over by default."""
        found = list(dict.fromkeys(d for s in self.of(suite, case) for d in s.domains))
        return [case] if case in found else found

    def labels(self, suite: str, case: str = "") -> list[str]:
        """Rows in the order of the field; released variants after the method they belong to."""
        found = [
            x for s in self.of(suite, case) for x in s.rows["label"][s.results.index.levels[0]]
        ]
        known = [x for m in METHODS for x in (m, f"{m} (released)") if x in found]
        return known + [x for x in dict.fromkeys(found) if x not in known]

    def accuracy(
        self,
        suite: str,
        label: str,
        case: str = "",
        domains: Sequence[str] | None = None,
        measure: str = "accuracy",
    ) -> DataFrame:
        """Scores by (seed, domain), of the seeds that have all the domains."""
        wanted = tuple(domains or self.domains(suite, case))
        key = (suite, label, case, wanted, measure)
        if key not in self._scores:
            self._scores[key] = self._find(*key)
        return self._scores[key]

    def _find(
        self, suite: str, label: str, case: str, wanted: Sequence[str], measure: str
    ) -> DataFrame:
        parts = []
        for setup in self.of(suite, case):
            rows = setup.rows.index[setup.rows["label"] == label]
            here = [d for d in wanted if d in setup.domains]
            scores = setup.scores(here, measure)
            parts.append(scores[scores.index.isin(rows, level="row")].droplevel("row"))
        if not parts:
            return NOTHING
        found = concat(parts) if len(parts) > 1 else parts[0]
        found = found[~found.index.duplicated(keep="last")]
        counts = found["value"].groupby("seed").transform("size")
        return found[counts == len(wanted)]

    def benchmark(self, name: str) -> dict[str, Any]:
        """What a script of benchmarks/ wrote."""
        text = (self.folder / "benchmarks" / f"{name}.json").read_text(encoding="utf-8")
        content: dict[str, Any] = json.loads(text)
        return content

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The same, of a script that writes a line for each run."""
        path = self.folder / "benchmarks" / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

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
