"""What a stream answered of late, and the labels that arrived for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from ..estimate import Measured

UNKNOWN = -1


class Answers:
    """The last `limit` answers by id, and counts of all labels so far. No method sees a label."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.clear()

    def clear(self) -> None:
        self.rows: dict[str, list[int]] = {}  # id -> class, the source model's class, label
        self.labeled = self.right = 0
        self.compared = self.source_right = self.gained = self.lost = 0  # source class known

    def add(self, ids: Sequence[str], classes: Sequence[int], source: Sequence[int]) -> None:
        for key, predicted, before in zip(ids, classes, source, strict=True):
            self.rows.pop(key, None)  # an id that comes again is the newer image
            self.rows[key] = [predicted, before, UNKNOWN]
        for key in list(islice(self.rows, max(0, len(self.rows) - self.limit))):
            del self.rows[key]

    def label(self, labels: Mapping[str, int]) -> dict[str, Any]:
        """Take labels by id; one that comes again replaces the one before."""
        known = {key: value for key, value in labels.items() if key in self.rows}
        for key, value in known.items():
            row = self.rows[key]
            if row[2] != UNKNOWN:
                self._count(row, -1)
            row[2] = value
            self._count(row, 1)
        return {
            "taken": len(known),
            "unknown": [key for key in labels if key not in known],
            "not_compared": sum(self.rows[key][1] == UNKNOWN for key in known),
        }

    def _count(self, row: list[int], sign: int) -> None:
        predicted, source, label = row
        self.labeled += sign
        self.right += sign * (predicted == label)
        if source != UNKNOWN:
            self.compared += sign
            self.source_right += sign * (source == label)
            self.gained += sign * (source != label == predicted)
            self.lost += sign * (predicted != label == source)

    @property
    def measured(self) -> Measured | None:
        """The change on the labeled images that the source model saw too."""
        counts = (self.compared, self.source_right, self.gained, self.lost)
        return Measured(*counts) if self.compared else None

    COUNTS = ("labeled", "right", "compared", "source_right", "gained", "lost")

    def to_json(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in self.COUNTS}, "rows": self.rows}

    def load_json(self, values: Mapping[str, Any]) -> None:
        for name in self.COUNTS:
            setattr(self, name, int(values[name]))
        rows = list(values["rows"].items())[-self.limit :] if self.limit else []
        self.rows = {key: list(row) for key, row in rows}
