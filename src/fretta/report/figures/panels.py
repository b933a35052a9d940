"""Runs that may stand in one picture: the same images in the same order through the same model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...experiment.records import Record, digest
from ..data import ReportData
from .base import count, plain, slug

CONDITIONS = ("data", "data_hash", "model", "weights_hash", "order", "order_options", "batch_size")
PANELS = 2  # so many setups get figures: the ones with the most runs
SEEDS = 5  # details of so many runs per method are read


@dataclass(frozen=True)
class Panel:
    """One setup: its runs by label of the method, each list by seed."""

    suite: str
    case: str
    runs: dict[str, list[Record]]

    @property
    def name(self) -> str:
        """A stem for file names."""
        first = next(iter(self.runs.values()))[0]
        return f"{slug(self.suite, self.case)[:40]}-{_conditions(first)[:4]}"

    @property
    def title(self) -> str:
        return plain(self.case or self.suite or "runs", 30)

    @property
    def is_grid(self) -> bool:
        """Dozens of settings of one method, not a comparison of methods."""
        methods = {runs[0].run["method"] for runs in self.runs.values()}
        return len(self.runs) > 3 * len(methods)

    def accuracy(self, label: str) -> float:
        values = [r.overall.get("mean_over_domains") for r in self.runs[label]]
        there = [v for v in values if v is not None]
        return float(np.mean(there)) if there else float("nan")

    def about(self) -> str:
        """On what data; for captions."""
        run = next(iter(self.runs.values()))[0].run
        seeds = max(len(runs) for runs in self.runs.values())
        images = run.get("order_options", {}).get("limit")
        limit = "" if images is None else f", {images:,} images per domain"
        return (
            f"{plain(self.case or run['data'].get('name'))} (suite {plain(self.suite or '–')}),"
            f" {plain(run['model'].get('spec'))}, {plain(run['order'])} stream in batches of"
            f" {run['batch_size']}{limit}, {count(seeds, 'seed')}"
        )

    def chosen(self, most: int) -> list[str]:
        """Source first, then the best; at most so many. FRET's own stay in."""
        own = [m for m in ("source", "bn", "s-fret", "g-fret") if m in self.runs]
        rest = sorted(self.runs.keys() - set(own), key=lambda m: (-self.accuracy(m), m))
        kept = set((own + rest)[:most])
        return sorted(kept, key=lambda m: (m != "source", -self.accuracy(m), m))

    def left_out(self, most: int) -> str:
        missing = len(self.runs) - len(self.chosen(most))
        return f" {count(missing, 'other method')} not drawn." if missing else ""


def panels(records: Iterable[Record]) -> list[Panel]:
    """All setups with finished runs, those with the most methods first; searches left out."""
    piles: dict[tuple[str, str, str], dict[str, dict[str, list[Record]]]] = {}
    for r in records:
        suite, case = str(r.tags.get("suite") or ""), str(r.tags.get("case") or "")
        if r.status != "done" or not r.rows or suite.endswith("/tune"):
            continue
        label = str(r.tags.get("label") or r.run["method"])
        settings = digest([r.run["hyperparameters"], r.run.get("adapter")])
        pile = piles.setdefault((suite, case, _conditions(r)), {})
        pile.setdefault(label, {}).setdefault(settings, []).append(r)
    found = [
        Panel(suite, case, {label: _fullest(groups) for label, groups in pile.items()})
        for (suite, case, _), pile in piles.items()
    ]
    return sorted(found, key=lambda p: (-len(p.runs), p.suite, p.case, p.name))


def _conditions(record: Record) -> str:
    return digest([{k: record.run.get(k) for k in CONDITIONS}])


def _fullest(groups: dict[str, list[Record]]) -> list[Record]:
    """One label, several settings: only runs of one setting may be averaged. The most seeds win."""
    best = max(groups.values(), key=lambda runs: (len(runs), runs[0].key))
    return sorted(best, key=lambda r: r.run["seed"])


def class_names(panel: Panel, data: ReportData, classes: int) -> list[str]:
    """As the data set calls them; numbers where no run tells, or runs do not agree."""
    told = [(data.details(runs[0].key) or {}).get("classes") for runs in panel.runs.values()]
    found = {tuple(plain(name) for name in names) for names in told if names}
    if {len(names) for names in found} != {classes} or len(found) > 1:
        return [str(number) for number in range(classes)]
    return list(*found)


def summed(data: ReportData, runs: list[Record], key: str) -> list[np.ndarray]:
    """A list of counts in the details, added up over domains and seeds: e.g. "class_seen"."""
    found = []
    for run in runs[:SEEDS]:
        details = data.details(run.key)
        for domain in (details or {}).get("domains", []):
            found.append(np.asarray(domain[key], dtype=float))
    return [np.sum(found, axis=0)] if found and len({len(f) for f in found}) == 1 else []
