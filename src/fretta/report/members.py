"""One stream and one model, and the methods that ran on it, with their numbers seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..experiment.records import Record, digest
from .shipped import suite_facts
from .significance import Counts, Part, Sample, Series, mean_of

Batches = Callable[[Record], Mapping[str, tuple[Counts, Counts]]]  # domain: right, images


def no_batches(record: Record) -> Mapping[str, tuple[Counts, Counts]]:
    """Where details of runs are not at hand."""
    return {}


@dataclass
class Member:
    """A method with its settings; its runs by case and seed."""

    label: str
    method: str
    runs: dict[str, dict[int, Record]]
    setting: str = ""  # what tells it from others of the same label
    flags: tuple[str, ...] = ()
    batches: Batches = field(default=no_batches, repr=False)

    @property
    def records(self) -> list[Record]:
        return [r for by_seed in self.runs.values() for r in by_seed.values()]

    @property
    def done(self) -> list[Record]:
        return [r for r in self.records if r.status == "done"]

    @property
    def settings_digest(self) -> str:
        run = self.records[0].run
        return digest([self.label, run.get("hyperparameters"), run.get("adapter")])

    def domain(self, name: str, field_name: str = "accuracy") -> Series:
        """A measure on one domain, by seed."""
        found: dict[int, Sample] = {}
        for record in self.done:
            for row in record.rows:
                if row.get("domain") == name and row.get(field_name) is not None:
                    part = self._part(record, row, field_name)
                    found[record.run["seed"]] = Sample(part.value, (record.key,), (part,))
        return found

    def _part(self, record: Record, row: dict[str, Any], field_name: str) -> Part:
        value = float(row[field_name])
        if field_name != "accuracy":
            return Part(value)
        batches = self.batches(record).get(str(row["domain"]))
        return Part(value, int(row.get("images") or 0), batches)

    def mean(self, domains: Iterable[str], field_name: str = "accuracy") -> Series:
        """The mean over domains, for the seeds that have them all."""
        return mean_of([self.domain(name, field_name) for name in domains])

    def failed(self, case: str | None = None) -> list[Record]:
        chosen = self.records if case is None else list(self.runs.get(case, {}).values())
        return [r for r in chosen if r.status != "done"]


@dataclass
class Setup:
    """What the rows of one table have in common."""

    suite: str
    heading: str  # the title of the suite
    name: str  # the case, or the backbone of several cases
    members: list[Member]
    domains: list[str]
    cases: dict[str, str]  # domain -> case, where each case is a domain; else empty
    run: dict[str, Any]  # of any of its records
    note: str = ""  # what tells it from others of the same name

    @property
    def title(self) -> str:
        return f"{self.name} ({self.note})" if self.note else self.name

    @property
    def paper(self) -> str:
        return suite_facts(self.suite).paper

    @property
    def dataset(self) -> str:
        return str(self.run.get("data", {}).get("name", ""))

    @property
    def source(self) -> Member | None:
        """What adapting is measured against."""
        plain = [m for m in self.members if m.method == "source" and m.done]
        return plain[0] if plain else None

    @property
    def seeds(self) -> list[int]:
        return sorted({r.run["seed"] for m in self.members for r in m.records})

    def gain(self, member: Member) -> Series:
        """Mean accuracy above `source`, seed by seed."""
        if self.source is None:
            return {}
        base, mine = self.source.mean(self.domains), member.mean(self.domains)
        return {s: Sample(mine[s].value - base[s].value, mine[s].keys) for s in mine if s in base}
