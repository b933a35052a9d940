"""What a run came to: plain values, for the page, the command line and Python."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .tally import Tally


@dataclass(frozen=True)
class Exported:
    """The weights that were written, and how the plain model with them compares."""

    images: int  # that gave the running statistics
    checked: int  # images the plain model was checked on, spread over the run
    agreement: float | None  # with the predictions made on the way
    accuracy: float | None  # of the plain model, where classes are known


@dataclass
class Outcome:
    """A finished or interrupted run."""

    out: Path
    complete: bool
    tally: Tally
    seconds: float = 0.0  # of this process
    resumed_at: int = 0  # batch
    estimate: dict[str, Any] | None = None
    exported: Exported | None = None
    remarks: list[str] = field(default_factory=list)

    @property
    def accuracy(self) -> float | None:
        t = self.tally
        return t.right / t.labelled if t.labelled else None

    @property
    def source_accuracy(self) -> float | None:
        t = self.tally
        return t.source_right / t.source_labelled if t.source_labelled else None

    def to_json(self) -> dict[str, Any]:
        """For settings.json."""
        t = self.tally
        return {
            "images": t.images,
            "batches": t.batches,
            "unreadable": t.unreadable,
            "changed": t.changed / t.compared if t.compared else None,
            "accuracy": self.accuracy,
            "source_accuracy": self.source_accuracy,
            "estimate": self.estimate,
            "exported": None if self.exported is None else asdict(self.exported),
        }
