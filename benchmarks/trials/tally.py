"""What was tried and what failed, by promise."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

SHOWN = 10  # failures of a promise that are kept in words


@dataclass
class Tally:
    """Counts of one area. A trial is one case of one promise; it fails by an exception."""

    area: str
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def count(self, promise: str, problem: str | None = None, case: str = "") -> None:
        row = self.rows.setdefault(promise, {"tried": 0, "failed": 0, "failures": []})
        row["tried"] += 1
        if problem is not None:
            row["failed"] += 1
            row["failures"] = [*row["failures"], f"{case}: {problem}"][:SHOWN]
            print(f"FAILED {self.area}: {promise} [{case}] {problem}", flush=True)

    @contextmanager
    def trial(self, promise: str, case: str = "") -> Iterator[None]:
        """What is done inside must not raise."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  anything at all is a failure, and counted
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{place.filename.rsplit('/', 1)[-1]}:{place.lineno}"
            self.count(promise, f"{type(error).__name__}: {str(error)[:300]} ({where})", case)
        else:
            self.count(promise)

    def table(self) -> list[dict[str, Any]]:
        return [{"area": self.area, "promise": name, **row} for name, row in self.rows.items()]


class BrokenError(AssertionError):
    """A promise that was not kept."""


def hold(kept: bool, otherwise: str) -> None:
    if not kept:
        raise BrokenError(otherwise)
