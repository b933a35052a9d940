"""What a report is made of: the records of a store, what was damaged, stored analyses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import StoreError
from ..experiment.records import Record
from ..experiment.results import select
from ..experiment.store import Store
from .significance import Counts


@dataclass
class ReportData:
    """Everything the report reads, read once; details of a run on demand."""

    store: Store
    records: list[Record] = field(default_factory=list)  # sound ones, done and failed; one that
    # several suites share once for each
    damaged: list[str] = field(default_factory=list)  # messages about those that are not
    analyses: list[dict[str, Any]] = field(default_factory=list)  # of `fretta analyze`
    _details: dict[str, dict[str, Any] | None] = field(default_factory=dict, repr=False)
    _batches: dict[str, dict[str, tuple[Counts, Counts]]] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, store: Store, suite: str | None = None) -> ReportData:
        """All of a store, or the records of one suite."""
        damaged: list[str] = []
        records = select(store.records(damaged), suite)
        return cls(store, records, damaged, store.analyses(damaged))

    @property
    def runs(self) -> list[Record]:
        """Each run once."""
        return list({r.key: r for r in self.records}.values())

    def details(self, key: str) -> dict[str, Any] | None:
        """What figures need of a run; None if there is none, or if it is damaged (noted once)."""
        if key not in self._details:
            try:
                self._details[key] = self.store.details(key)
            except StoreError as error:
                self._details[key] = None
                self.damaged.append(str(error))
        return self._details[key]

    def batches(self, record: Record) -> dict[str, tuple[Counts, Counts]]:
        """By domain, how many images of each batch were right, and how many there were.

        Only of domains for which they add up to the record: batches may mix domains.
        """
        if record.key not in self._batches:
            try:
                self._batches[record.key] = _by_domain((self.details(record.key) or {}), record)
            except (KeyError, TypeError, ValueError, AttributeError):  # not of our making
                self._batches[record.key] = {}
        return self._batches[record.key]


def _by_domain(details: dict[str, Any], record: Record) -> dict[str, tuple[Counts, Counts]]:
    batches = details.get("batches") or {"domain": [], "right": [], "images": []}
    domains = np.array(batches["domain"], dtype=object)
    right, images = (np.array(batches[k], dtype=np.int64) for k in ("right", "images"))
    found = {}
    for row in record.rows:
        mine = domains == row["domain"]
        total, hits = int(images[mine].sum()), int(right[mine].sum())
        if total and total == row["images"] and hits == round(row["accuracy"] * total):
            found[str(row["domain"])] = (right[mine], images[mine])
    return found
