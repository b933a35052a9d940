"""One stream: an adapter, what is known of it without labels, and the labels that came late."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ..adapter import Adapter
from ..deploy.run import SAMPLE
from ..errors import FrettaError, StateError
from ..estimate import Estimate, Estimator
from ..estimate.verdict import FEW, estimate_text, verdict
from ..guard import Health, measure
from .answers import UNKNOWN, Answers
from .settings import Settings

EVENTS = 64  # that are kept
RECENT = 512  # answers that a request sent again gets once more; at least those of one request
ESTIMATE_EVERY = 8  # batches between estimates in the overview
MEASURED = ("entropy", "marginal_entropy", "nrs", "changed", "drift", "update_norm", "pass_rate")
SHOWN = ("entropy", "nrs", "drift", "changed")  # of the last batch, in the overview
COUNTS = ("batches", "learned", "images", "by_source", "frozen", "seconds", "updated")


@dataclass(frozen=True)
class Answer:
    """The prediction for one image."""

    id: str
    stream: str
    label: str
    index: int
    confidence: float | None  # None: not finite
    top5: list[dict[str, Any]]  # label, index, confidence; the best first
    predicted_by: str  # "adapted" or "source"
    batch: int  # number in the stream; a reset does not restart it
    position: int  # in the batch
    health: dict[str, Any]  # of the batch

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


class Stream:
    """An adapter with its history. Not safe in several threads: the host sees to that."""

    def __init__(
        self,
        name: str,
        adapter: Adapter,
        estimator: Estimator,
        settings: Settings,
        classes: Sequence[str],
    ) -> None:
        self.name, self.adapter, self.estimator = name, adapter, estimator
        self.settings, self.classes = settings, classes
        self.answers = Answers(settings.remember)
        self.batches = self.learned = self.images = self.by_source = 0  # the last two: images
        self.frozen = False
        self.seconds = 0.0  # of computing
        self.updated = 0.0  # Unix time of the last batch
        self.actions: dict[str, int] = {}  # of the guard
        self.predicted = np.zeros(len(classes), dtype=np.int64)
        self.history: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.recent: dict[str, list[Any]] = {}  # the last answers by id, for requests sent again
        self.saved: int | None = None  # batches in the last checkpoint
        self.unsaved = 0  # batches that are in no checkpoint
        self.changed = False  # since the last checkpoint
        self.problem = ""  # of the last checkpoint
        self.used = 0  # when: the host counts
        self.estimate: Estimate | None = None  # of some batches ago
        self._health: Health | None = None
        adapter.on_health(self._keep_health)
        self.row = self._row()

    def _keep_health(self, health: Health) -> None:
        self._health = health

    # ---- one batch ---------------------------------------------------------------------------

    def step(self, x: Tensor, ids: Sequence[str], digests: Sequence[str]) -> list[Answer]:
        """Predict and, unless frozen, learn. On an error nothing has changed.

        digests   of the images: an id alone may come again with another one
        """
        begin = time.perf_counter()
        logits, predicted_by = self._predict(x) if self.frozen else self._learn(x)
        self.adapter.learner.head_input = None  # as large as the batch, and only for its health
        source = self._compare(x, logits)
        # a stable sort: equal values keep the order of the classes
        best = logits.softmax(1).sort(dim=1, descending=True, stable=True)
        ranked = best.indices[:, :5].tolist()
        classes = [row[0] for row in ranked]
        self.predicted += np.bincount(classes, minlength=len(self.predicted))
        health = self._record(len(x), predicted_by, time.perf_counter() - begin)
        self.answers.add(ids, classes, source)
        confidences = [[_finite(p) for p in row] for row in best.values[:, :5].tolist()]
        rows = [
            [self.batches, i, predicted_by, ranked[i], confidences[i], digests[i]]
            for i in range(len(ids))
        ]
        answers = [self._answer(key, row, health) for key, row in zip(ids, rows, strict=True)]
        for key, row in zip(ids, rows, strict=True):
            self.recent.pop(key, None)  # an id that comes again is the newer image
            self.recent[key] = row
        for key in list(self.recent)[: -max(RECENT, self.settings.max_images)]:
            del self.recent[key]
        self.batches, self.unsaved = self.batches + 1, self.unsaved + 1
        if self.batches <= ESTIMATE_EVERY or self.batches % ESTIMATE_EVERY == 0:
            self.estimate = self._estimate()
        self.changed, self.row = True, self._row()
        return answers

    def _learn(self, x: Tensor) -> tuple[Tensor, str]:
        logits = self.adapter(x).float().cpu()
        self.learned += 1
        return logits, "source" if self.adapter.by_source else "adapted"

    def _predict(self, x: Tensor) -> tuple[Tensor, str]:
        adapter = self.adapter
        logits = adapter.predict(x).float().cpu()
        self._health, _ = measure(logits, adapter.method, self.batches)
        by_source = adapter.safe or not adapter.method.adapts or adapter.method.source_share > 0.5
        return logits, "source" if by_source else "adapted"

    def _compare(self, x: Tensor, logits: Tensor) -> list[int]:
        """Show the source model some of the images; its class for each, where it saw it."""
        every = 1 if self.settings.compare_source else SAMPLE
        classes = [UNKNOWN] * len(x)
        try:
            source = self.adapter.source_logits(x[::every]).float().cpu()
            self.estimator.update(source, logits[::every])
            classes[::every] = source.argmax(1).tolist()
        except (
            FrettaError,
            RuntimeError,
            MemoryError,
        ):  # no memory, no finite logits: no comparison
            pass
        return classes

    def _record(self, images: int, predicted_by: str, seconds: float) -> dict[str, Any]:
        now, found = time.time(), {} if self._health is None else self._health.to_json()
        row = {
            "batch": self.batches,
            "time": now,
            "images": images,
            "learned": not self.frozen,
            "predicted_by": predicted_by,
            **{name: found.get(name) for name in MEASURED},
            **{name: found.get(name, "") for name in ("action", "reason")},
        }
        self.history = [*self.history, row][-self.settings.history :]
        if row["action"]:
            self.actions = {**self.actions, row["action"]: self.actions.get(row["action"], 0) + 1}
        self.images += images
        self.by_source += images if predicted_by == "source" else 0
        self.seconds, self.updated = self.seconds + seconds, now
        return row

    def recall(self, ids: Sequence[str], digests: Sequence[str]) -> dict[str, Answer]:
        """The answers of late to these images under these ids; the others are left out."""
        health = self.history[-1] if self.history else {}
        pairs = zip(ids, digests, strict=True)
        known = {key: row for key, d in pairs if (row := self.recent.get(key)) and row[-1] == d}
        return {key: self._answer(key, row, health) for key, row in known.items()}

    def _answer(self, key: str, row: Sequence[Any], health: dict[str, Any]) -> Answer:
        batch, position, predicted_by, ranked, confidences, _ = row
        names = [self.classes[number] for number in ranked]
        return Answer(
            id=key,
            stream=self.name,
            label=names[0],
            index=ranked[0],
            confidence=confidences[0],
            top5=[
                {"label": name, "index": number, "confidence": p}
                for name, number, p in zip(names, ranked, confidences, strict=True)
            ],
            predicted_by=predicted_by,
            batch=batch,
            position=position,
            health=health,
        )

    # ---- what the operator does --------------------------------------------------------------

    def reset(self) -> None:
        """As a new stream; counts of images, the history and being frozen stay."""
        self.adapter.reset()
        self.estimator.reset()
        self.answers.clear()
        self.recent = {}
        self.predicted[:] = 0
        self.estimate = None
        self.happened("reset")

    def happened(self, event: str) -> None:
        row = {"batch": self.batches, "time": time.time(), "event": event}
        self.events = [*self.events, row][-EVENTS:]
        self.changed, self.row = True, self._row()

    def feedback(self, labels: Mapping[str, int]) -> dict[str, Any]:
        """Labels by id, as classes."""
        found = self.answers.label(labels)
        self.changed = True
        self.estimate = self._estimate()
        self.row = self._row()
        return {**found, **self._labels(), **self._verdict()}

    # ---- facts -------------------------------------------------------------------------------

    def _estimate(self) -> Estimate | None:
        return self.estimator.result(self.predicted.tolist()) if self.estimator.samples else None

    def _verdict(self) -> dict[str, Any]:
        """Does adapting help? By labels where there are some."""
        measured, estimate = self.answers.measured, self.estimate
        few = estimate is None or estimate.samples < FEW
        if measured is not None and estimate is not None:
            return {"verdict": verdict(estimate, measured), "text": str(measured)}
        if few or estimate is None:
            seen = 0 if estimate is None else estimate.samples
            return {
                "verdict": "cannot tell",
                "text": f"too few images were compared with the source model ({seen})",
            }
        text = f"estimated without labels: {estimate_text(estimate, self.classes)}"
        return {"verdict": verdict(estimate), "text": text}

    def _labels(self) -> dict[str, Any]:
        answers, measured = self.answers, self.answers.measured
        return {
            "labeled": answers.labeled,
            "accuracy": answers.right / answers.labeled if answers.labeled else None,
            "measured": None if measured is None else measured.to_json(),
        }

    def _row(self) -> dict[str, Any]:
        """For the overview; never changed afterwards, so that any thread may read it."""
        last = self.history[-1] if self.history else {}
        estimate = None
        if self.estimate is not None:
            names = ("source", "adapted", "change", "low", "high")
            estimate = {name: getattr(self.estimate, name) for name in names}
        return {
            "name": self.name,
            "in_memory": True,
            **{name: getattr(self, name) for name in COUNTS},
            "actions": self.actions,
            "checkpoint": self.saved,
            "problem": self.problem,
            **{name: last.get(name) for name in SHOWN},
            "estimate": estimate,
            "verdict": self._verdict()["verdict"],
            "labeled": self.answers.labeled,
        }

    def detail(self) -> dict[str, Any]:
        self.estimate = self._estimate()
        self.row = self._row()
        estimate = None if self.estimate is None else asdict(self.estimate)
        return {
            **self.row,
            **self._labels(),
            **self._verdict(),
            "estimate": estimate,
            "history": self.history,
            "events": self.events,
            "method": self.adapter.method.key,
            "hyperparameters": self.adapter.hyperparameters,
            "guard": self.settings.guard,
        }

    # ---- checkpoints -------------------------------------------------------------------------

    KEPT = (*COUNTS, "actions", "history", "events", "recent")

    def values(self) -> dict[str, Any]:
        """What a checkpoint holds beside the state."""
        kept = {name: getattr(self, name) for name in self.KEPT}
        return {**kept, "predicted": self.predicted.tolist(), "answers": self.answers.to_json()}

    def state(self) -> dict[str, Any]:
        return {"adapter": self.adapter.state_dict(), "estimator": self.estimator.state_dict()}

    def load(self, values: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        try:
            self.adapter.load_state_dict(state["adapter"])
            self.estimator.load_state_dict(state["estimator"])
            for name in self.KEPT:
                setattr(self, name, values[name])
            self.history = self.history[-self.settings.history :]
            self.predicted = np.array(values["predicted"], dtype=np.int64)
            self.answers.load_json(values["answers"])
        except (LookupError, TypeError, AttributeError) as error:
            raise StateError(f"a checkpoint lacks what a stream needs: {error}") from error
        self.estimate = self._estimate()
        self.stored()

    def failed(self, problem: str) -> None:
        """A checkpoint could not be written."""
        self.problem = problem
        self.row = self._row()

    def stored(self) -> None:
        """What there is, is in a checkpoint."""
        self.saved, self.unsaved, self.changed, self.problem = self.batches, 0, False, ""
        self.row = self._row()


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
