"""The counts and the result of a run: plain values for the page, the terminal and Python."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..data.read_ahead import FileBatch
from ..estimate import Estimate, Measured
from ..estimate.verdict import FEW, estimate_text, reason, verdict
from .output import LABEL_ME

SPREAD = 256  # images, spread over the run, on which the written weights are checked
SHOWN = 50  # unreadable files that are listed by name
AGREES = 0.95  # of the labels are the same: no advice is needed


@dataclass
class Counts:
    """Counts of files, predictions and hits, small enough to go into every checkpoint.

    Lists have one number per class.
    """

    predicted: list[int]
    source_predicted: list[int]  # by the source model, on the images it saw
    labeled: list[int]  # by true class, where folders name it; of these, right by each model:
    source_right: list[int]
    right: list[int]
    files: int = 0  # names taken from the list, readable or not
    batches: int = 0
    unreadable: int = 0
    changed: int = 0  # predictions that differ from the source model's
    gained: int = 0  # labeled, wrong by the source model and right when adapted
    lost: int = 0  # the other way round
    unreadable_files: list[list[str]] = field(default_factory=list)  # [name, why] of the first
    spread: list[list[Any]] = field(default_factory=list)  # [rank, name, class, label]
    recent: list[str] = field(default_factory=list)
    names_hash: str = ""  # of all names so far: does a resumed list begin with the same ones?

    @classmethod
    def empty(cls, classes: int) -> Counts:
        zero = [0] * classes
        return cls(zero, zero, zero, zero, zero)

    @property
    def images(self) -> int:
        return sum(self.predicted)

    @property
    def compared(self) -> int:
        """Images the source model saw too."""
        return sum(self.source_predicted)

    def add_names(self, names: Iterable[str]) -> None:
        for name in names:
            content = self.names_hash.encode() + name.encode("utf-8", "surrogateescape")
            self.names_hash = hashlib.sha256(content).hexdigest()
            self.files += 1

    def add(
        self,
        batch: FileBatch,
        predicted: list[int],
        source: list[int],
        labels: list[int],
        keep: int,
    ) -> None:
        """One batch. Of each readable image: predicted class, the source model's, and the label.

        -1: the model diverged, the source model did not see the image, or it has no label. The
        names of the last `keep` images are kept.
        """
        self.add_names(batch.names)
        self.unreadable += len(batch.unreadable)
        for position, why in sorted(batch.unreadable.items()):
            if len(self.unreadable_files) < SHOWN:
                self.unreadable_files.append([batch.names[position], why])
        self.batches += bool(batch.kept)
        names = [batch.names[i] for i in batch.kept]
        # keep the latest names, and some of all: those whose hash is lowest
        rows = zip(names, predicted, labels, strict=True)
        ranked = [
            [_rank(n, row[0]), *row] for n, row in enumerate(rows, self.images) if row[1] >= 0
        ]
        self.spread = heapq.nsmallest(SPREAD, [*self.spread, *ranked])
        self.recent = [*self.recent, *names][-keep:]
        p, s, y = np.array([predicted, source, labels], dtype=np.int64)
        self.predicted = _add(self.predicted, p[p >= 0])
        self.source_predicted = _add(self.source_predicted, s[s >= 0])
        self.changed += int(((s >= 0) & (p != s)).sum())
        p, s, y = (values[y >= 0] for values in (p, s, y))
        self.labeled = _add(self.labeled, y)
        self.source_right = _add(self.source_right, y[s == y])
        self.right = _add(self.right, y[p == y])
        self.gained += int(((p == y) & (s != y)).sum())
        self.lost += int(((p != y) & (s == y)).sum())


def _rank(number: int, name: str) -> int:
    content = f"{number}".encode() + name.encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(content, digest_size=6).digest(), "big")


def _add(counts: list[int], classes: np.ndarray[Any, np.dtype[np.int64]]) -> list[int]:
    total: list[int] = (np.bincount(classes, minlength=len(counts)) + counts).tolist()
    return total


@dataclass(frozen=True)
class WeightsCheck:
    """The weights that were written, and how the plain model with them compares."""

    images: int  # that gave the running statistics
    checked: int  # images the plain model was checked on, spread over the run
    agreement: float | None  # with the predictions of the adapter
    accuracy: float | None  # of the plain model, where classes are known
    adapter_accuracy: float | None = None  # of the adapter's predictions, on the same images

    def __str__(self) -> str:
        """What the check found, after "the written weights"."""
        if self.agreement is None:
            return "could not be checked: none of the images could be read again"
        accuracy = ""
        if self.accuracy is not None and self.adapter_accuracy is not None:
            plain, adapter = 100 * self.accuracy, 100 * self.adapter_accuracy
            accuracy = f" (accuracy {plain:.1f} %, the adapter's {adapter:.1f} %)"
        return (
            f"give the same label as the adapter did on {100 * self.agreement:.1f} % of"
            f" {self.checked:,} images{accuracy}"
        )

    def advice(self, seen: int) -> str:
        """Why labels differ, and what would help; empty where few do. `seen`: images in all."""
        if self.agreement is None or self.agreement >= AGREES:
            return ""
        if not self.images:  # no batch norms: the model changed while it adapted
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
class AdaptResult:
    """A finished or interrupted run."""

    out: Path
    complete: bool
    counts: Counts
    resumed_at: int = 0  # batch
    class_names: list[str] = field(default_factory=list)
    estimate: Estimate | None = None
    why_source: str = ""  # nothing was adapted, or the guard does not let the adapted model predict
    weights: WeightsCheck | None = None
    notes: list[str] = field(default_factory=list)
    asked: int = 0  # images in label-me.csv, whose labels would decide

    @property
    def accuracy(self) -> float | None:
        labeled = sum(self.counts.labeled)
        return sum(self.counts.right) / labeled if labeled else None

    @property
    def source_accuracy(self) -> float | None:
        return None if self.measured is None else self.measured.source

    @property
    def changed(self) -> float | None:
        """Share of the compared predictions that differ from the source model's."""
        return self.counts.changed / self.counts.compared if self.counts.compared else None

    @property
    def measured(self) -> Measured | None:
        """The change on the images whose labels are known."""
        c, images = self.counts, sum(self.counts.labeled)
        return Measured(images, sum(c.source_right), c.gained, c.lost) if images else None

    @property
    def only_source(self) -> bool:
        """The source model made the predictions, as far as they were compared."""
        return bool(self.why_source) and not self.counts.changed

    @property
    def too_few(self) -> bool:
        """Too few images were compared for an estimate, or for labels of theirs to decide."""
        return self.estimate is not None and self.estimate.samples < FEW

    @property
    def verdict(self) -> str:
        """helps, hurts, cannot tell, ...: measured where labels are known, else estimated."""
        if self.estimate is None:
            return ""
        if self.only_source:
            return "source"
        if self.measured is None and self.too_few:
            return "cannot tell"
        return verdict(self.estimate, self.measured)

    def verdict_lines(self) -> list[str]:
        """Does adapting help? Where labels are known, also the estimate without them."""
        if self.estimate is None or not self.estimate.samples:
            return []
        if self.only_source:
            return [f"the source model predicted: {self.why_source}"]
        if self.too_few:
            sampled = self.measured is None and self.estimate.samples < self.counts.images
            more = "; --compare-source takes all" if sampled else ""
            estimated = f"too few images were compared ({self.estimate.samples}){more}"
        else:
            more = "; --prior takes their shares" if self.reason else ""
            estimated = estimate_text(self.estimate, self.class_names) + more
        if self.measured is None:
            lines = [f"estimated without labels: {estimated}"]
            if self.asked:
                lines.append(
                    f"{self.asked:,} labels would decide: fill in {self.out / LABEL_ME} and give it"
                    " with --answers"
                )
            return lines
        return [str(self.measured), f"without labels the estimate is: {estimated}"]

    @property
    def reason(self) -> str:
        return "" if self.estimate is None else reason(self.estimate, self.class_names)

    def to_json(self) -> dict[str, Any]:
        """For settings.json."""
        return {
            "images": self.counts.images,
            "batches": self.counts.batches,
            "unreadable": self.counts.unreadable,
            "changed": self.changed,
            "accuracy": self.accuracy,
            "source_accuracy": self.source_accuracy,
            "verdict": self.verdict,
            "reason": self.reason,
            "measured": None if self.measured is None else self.measured.to_json(),
            "estimate": None if self.estimate is None else asdict(self.estimate),
            "asked": self.asked,
            "weights": None if self.weights is None else asdict(self.weights),
        }
