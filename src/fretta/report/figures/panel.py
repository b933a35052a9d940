"""A setup as figures of runs show it, and which setups are shown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...experiment.records import Record
from ...experiment.results import setup_of
from ..data import ReportData
from ..setups import Setup, principal_rows
from ..table import slug
from .draw import plain

MOST = 12  # methods in a figure
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Panel:
    """A setup as figures show it: finished runs by label, by case and seed."""

    setup: Setup
    runs: dict[str, list[Record]]

    @property
    def name(self) -> str:
        """A stem for file names."""
        return f"{slug(self.setup.suite, self.setup.name)[:40]}-{setup_of(self.setup.run)[:4]}"

    @property
    def title(self) -> str:
        return plain(self.setup.title or self.setup.suite or "runs", 40)

    @property
    def is_grid(self) -> bool:
        """Dozens of settings of one method, not a comparison of methods."""
        methods = {runs[0].run["method"] for runs in self.runs.values()}
        return len(self.runs) > 3 * len(methods)

    def accuracy(self, label: str) -> float:
        """Mean over domains and seeds."""
        return float(np.mean([r.overall["mean_over_domains"] for r in self.runs[label]]))

    def about(self, most: int = MOST) -> str:
        """On what data, and how much of it; for captions."""
        run, seeds = self.setup.run, len(self.setup.seeds)
        limit = (run.get("order_options") or {}).get("limit")
        missing = len(self.runs) - len(self.chosen(most))
        images = "" if limit is None else f", {limit:,} images per domain"
        others = f" {missing} other method{'s' * (missing > 1)} not drawn." if missing else ""
        return (
            f"{self.title} (suite {plain(self.setup.suite or '–')}), {plain(run['model']['spec'])},"
            f" {plain(run['order'])} stream in batches of {run['batch_size']}{images},"
            f" {seeds} seed{'s' * (seeds > 1)}.{others}"
        )

    def chosen(self, most: int = MOST) -> list[str]:
        """Source first, then the best; at most so many. FRET's own stay in."""
        own = [m for m in ("source", "bn", "s-fret", "g-fret") if m in self.runs]
        rest = sorted(self.runs.keys() - set(own), key=lambda m: (-self.accuracy(m), m))
        kept = set((own + rest)[:most])
        return sorted(kept, key=lambda m: (m != "source", -self.accuracy(m), m))

    def summed(self, data: ReportData, label: str, key: str) -> Values | None:
        """A list of counts in the details, added up over domains and seeds: e.g. "class_seen"."""
        found = [
            np.asarray(domain[key], dtype=float)
            for run in self.runs[label]
            for domain in (data.details(run.key) or {}).get("domains", [])
        ]
        same = len({len(f) for f in found}) == 1
        return np.sum(found, axis=0) if same else None

    def classes(self, data: ReportData, number: int) -> list[str]:
        """As the data set calls them; numbers where no run says, or runs do not agree."""
        details = [data.details(runs[0].key) or {} for runs in self.runs.values()]
        found = {tuple(map(plain, d["classes"])) for d in details if d.get("classes")}
        if len(found) == 1 and len(names := next(iter(found))) == number:
            return list(names)
        return [str(n) for n in range(number)]


def panels(setups: list[Setup]) -> list[Panel]:
    """Setups with finished runs, those with the most methods first; searches left out."""
    found = []
    for setup in setups:
        done = setup.runs[setup.runs["done"]]
        records = {
            label: done[done["row"] == row]["record"].tolist()
            for label, row in sorted(principal_rows(setup).items(), key=lambda item: item[1])
        }
        runs = {label: [r for r in mine if r.rows] for label, mine in records.items()}
        runs = {label: mine for label, mine in runs.items() if mine}
        if runs and not setup.suite.endswith("/tune"):
            found.append(Panel(setup, runs))
    return sorted(found, key=lambda p: (-len(p.runs), p.setup.suite, p.setup.title))
