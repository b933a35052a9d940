"""What a run came to: plain values, for the page, the command line and Python."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .tally import Tally

ENOUGH = 0.95  # of the labels are the same: nothing to advise


@dataclass(frozen=True)
class Exported:
    """The weights that were written, and how the plain model with them compares."""

    images: int  # that gave the running statistics
    checked: int  # images the plain model was checked on, spread over the run
    agreement: float | None  # with the predictions made on the way
    accuracy: float | None  # of the plain model, where classes are known
    adapter_accuracy: float | None = None  # of the predictions made on the way, on the same images

    def text(self) -> str:
        """What the check found, after "the written weights"."""
        if self.agreement is None:
            return "could not be checked: none of the images could be read again"
        accuracy = ""
        if self.accuracy is not None and self.adapter_accuracy is not None:
            ours, theirs = 100 * self.accuracy, 100 * self.adapter_accuracy
            accuracy = f" (accuracy {ours:.1f} %, the adapter's {theirs:.1f} %)"
        return (
            f"give the same label as the adapter did on {100 * self.agreement:.1f} % of"
            f" {self.checked:,} images{accuracy}"
        )

    def advice(self, seen: int) -> str:
        """Why it is not all of them, and what would help; empty where nothing is amiss."""
        if self.agreement is None or self.agreement >= ENOUGH:
            return ""
        if not self.images:  # no batch norms: the model moved on while it adapted
            return (
                "They are those at the end of the run; earlier labels came from earlier weights."
                " If that is too little, deploy the adapter itself."
            )
        more = f"--statistics {4 * self.images}" if seen > self.images else "more images"
        return (
            f"Their batch-norm statistics are fixed, from the last {self.images:,} images; the"
            f" adapter uses those of each batch. If that is too little: {more}, or deploy the"
            " adapter itself."
        )


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
