"""What a run came to: plain values, for the page, the command line and Python."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..estimate import Estimate, Measured
from ..estimate.words import estimated_text, measured_text, reason
from ..estimate.words import verdict as word_of
from .tally import Tally

ENOUGH = 0.95  # of the labels are the same: nothing to advise
FEW = 32  # images compared, below which no estimate is told


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
    estimate: Estimate | None = None
    names: list[str] = field(default_factory=list)  # of the classes
    why_source: str = ""  # nothing was adapted, or the guard does not let the adapted model predict
    exported: Exported | None = None
    remarks: list[str] = field(default_factory=list)

    @property
    def accuracy(self) -> float | None:
        t = self.tally
        return t.right / t.labeled if t.labeled else None

    @property
    def source_accuracy(self) -> float | None:
        t = self.tally
        return t.source_right / t.source_labeled if t.source_labeled else None

    @property
    def measured(self) -> Measured | None:
        """The change on the images whose labels are known."""
        t = self.tally
        if not t.source_labeled:
            return None
        return Measured(t.source_labeled, t.source_right, t.gained, t.lost)

    @property
    def only_source(self) -> bool:
        """The source model made the predictions, as far as they were compared."""
        return bool(self.why_source) and not self.tally.changed

    @property
    def verdict(self) -> str:
        """helps, hurts, cannot tell, ...: measured where labels are known, else estimated."""
        if self.estimate is None:
            return ""
        if self.only_source:
            return "source"
        if self.measured is None and self.estimate.samples < FEW:
            return "cannot tell"
        return word_of(self.estimate, self.measured)

    def verdict_lines(self) -> list[str]:
        """Does adapting help? Where labels are known, also what would be said without them."""
        if self.estimate is None or not self.estimate.samples:
            return []
        if self.only_source:
            return [f"the source model predicted: {self.why_source}"]
        estimated = self._estimated(self.estimate)
        if self.measured is None:
            return [f"estimated without labels: {estimated}"]
        return [measured_text(self.measured), f"without labels it would have said: {estimated}"]

    def _estimated(self, found: Estimate) -> str:
        if found.samples < FEW:
            more = "" if self.measured is not None else "; --compare-source takes all"
            return f"too few images were compared ({found.samples}){more}"
        more = "; --prior takes their shares" if reason(found, self.names) else ""
        return estimated_text(found, self.names) + more

    def to_json(self) -> dict[str, Any]:
        """For settings.json."""
        t, measured = self.tally, self.measured
        return {
            "images": t.images,
            "batches": t.batches,
            "unreadable": t.unreadable,
            "changed": t.changed / t.compared if t.compared else None,
            "accuracy": self.accuracy,
            "source_accuracy": self.source_accuracy,
            "verdict": self.verdict,
            "reason": "" if self.estimate is None else reason(self.estimate, self.names),
            "measured": None if measured is None else measured.to_json(),
            "estimate": None if self.estimate is None else asdict(self.estimate),
            "exported": None if self.exported is None else asdict(self.exported),
        }
