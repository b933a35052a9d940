"""What a report is made of: the records of a store, damaged files, stored analyses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StoreError
from ..experiment.records import Record
from ..experiment.results import select
from ..experiment.store import Store

Counts = NDArray[np.int64]
Batches = Callable[[Record], Mapping[str, tuple[Counts, Counts]]]


@dataclass
class ReportData:
    """Everything the report reads, read once; details of a run on demand."""

    store: Store
    records: list[Record] = field(default_factory=list)  # one that several suites share once each
    damaged: list[str] = field(default_factory=list)  # messages about damaged files
    analyses: list[dict[str, Any]] = field(default_factory=list)  # of `fretta analyze`
    _details: dict[str, dict[str, Any] | None] = field(default_factory=dict, repr=False)

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

    def batches(self, record: Record) -> Mapping[str, tuple[Counts, Counts]]:
        """By domain, the right answers of each batch and its images.

        Only of domains for which they add up to the record: batches may mix domains.
        """
        found: dict[str, tuple[Counts, Counts]] = {}
        try:
            batches = (self.details(record.key) or {}).get("batches") or {}
            domains = np.array(batches.get("domain", []), dtype=object)
            right, images = (np.array(batches.get(k, []), np.int64) for k in ("right", "images"))
            for row in record.rows:
                mine = domains == row["domain"]
                total, hits = int(images[mine].sum()), int(right[mine].sum())
                if total and total == row["images"] and hits == round(row["accuracy"] * total):
                    found[str(row["domain"])] = (right[mine], images[mine])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):  # not our format
            return {}
        return found
