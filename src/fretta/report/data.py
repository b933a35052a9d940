"""What a report is made of: the records of a store, what was damaged, stored analyses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..errors import StoreError
from ..records import Record
from ..store import Store


@dataclass
class ReportData:
    """Everything the report reads, read once; details of a run on demand."""

    store: Store
    records: list[Record] = field(default_factory=list)  # sound ones, done and failed
    damaged: list[str] = field(default_factory=list)  # messages about those that are not
    analyses: list[dict[str, Any]] = field(default_factory=list)  # of `fretta analyze`
    _details: dict[str, dict[str, Any] | None] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, store: Store, suite: str | None = None) -> ReportData:
        """All of a store, or the records of one suite."""
        damaged: list[str] = []
        records = [
            r for r in store.records(damaged) if suite is None or r.tags.get("suite") == suite
        ]
        return cls(store, records, damaged, store.analyses(damaged))

    def details(self, key: str) -> dict[str, Any] | None:
        """What figures need of a run; None if there is none, or if it is damaged (noted once)."""
        if key not in self._details:
            try:
                self._details[key] = self.store.details(key)
            except StoreError as error:
                self._details[key] = None
                self.damaged.append(str(error))
        return self._details[key]
