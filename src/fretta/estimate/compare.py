"""Several methods over the same images, in one pass over the decoder, ranked.

Without labels the ranking is an estimate; where labels are known, it is measured.

Every method adapts its own copy of the model; frozen tensors are shared (see experiment/loop.py).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..adapter import Adapter
from ..errors import ConfigError, DataError
from ..experiment.loop import Item, Step, stream_through
from ..method import Method, Need
from ..methods import Source
from ..prepare import predicted_classes
from . import Estimate, Estimator, Measured, SourceFacts, combine
from .answers import Answered
from .verdict import FEW, UNCHANGED, points, reason, verdict

SOURCE = "source"  # the unadapted model, which the others are compared with
TIE = 0.01  # of accuracy: methods that differ by less are reported as about the same


@dataclass(frozen=True)
class Compared:
    """One method. `accuracy` and `measured` are None where nothing was labeled."""

    method: str
    estimate: Estimate
    seconds_per_batch: float  # the median, without the first batch
    accuracy: float | None = None
    measured: Measured | None = None  # against the source model
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    predicted: list[int] = field(default_factory=list)  # images by predicted class
    labeled: list[int] = field(default_factory=list)  # images by true class; of these, right:
    right: list[int] = field(default_factory=list)
    answered: Answered | None = None  # from a few labels that were asked for
    classes: NDArray[np.int64] | None = field(default=None, repr=False)  # predicted, image by image

    @property
    def reference(self) -> bool:
        return self.method == SOURCE

    @property
    def verdict(self) -> str:
        """Measured where labels are known, from answers where some were given, else estimated."""
        if self.reference:
            return "reference"
        if self.measured is None and not self.estimate.disagreement:
            return verdict(self.estimate)  # answers cannot tell more
        return verdict(self.estimate, self.measured or self.answered)

    @property
    def change(self) -> float:
        """By which methods are ranked: an estimate that cannot be trusted is no gain."""
        if (known := self.measured or self.answered) is not None:
            return known.change
        change = self.estimate.change
        return change if self.estimate.uneven is None else min(change, 0.0)

    def to_json(self, names: Sequence[str] = ()) -> dict[str, Any]:
        values = asdict(replace(self, classes=None))
        del values["classes"]
        estimate = values.pop("estimate")
        return {
            **values,
            "estimator": estimate.pop("method"),
            **estimate,
            "verdict": self.verdict,
            "without_labels": "reference" if self.reference else verdict(self.estimate),
            "reason": reason(self.estimate, names),
            "measured": None if self.measured is None else self.measured.to_json(),
            "answered": None if self.answered is None else self.answered.to_json(),
        }


def compare(
    model: nn.Module,
    batches: Iterable[Item],
    methods: Mapping[str, Method],
    *,
    source: Callable[[], Iterable[Any]] | None = None,
    head: str | None = None,
    level: float = 0.9,
    temperature: float = 1.0,
    prior: Sequence[float] | None = None,
    facts: SourceFacts | None = None,
    on_batch: Callable[[int], None] = lambda images: None,
) -> list[Compared]:
    """Adapt with every method along `batches`; the best first, as far as one can tell.

    methods      label -> method; the source model always takes part, as `source`
    source       called once for every method that needs source images
    level        how often the intervals are meant to hold
    temperature  of the source model, if it was measured on labeled source images
    prior        share of each class among the images, if known
    facts        the source model on labeled source images, if there are some
    on_batch     called after every batch with the number of images so far
    """
    if SOURCE in methods and methods[SOURCE].adapts:
        raise ConfigError(f"{SOURCE!r} is the unadapted model; give the method another label")
    methods = {SOURCE: Source(), **methods}
    estimator = partial(Estimator, level=level, temperature=temperature, prior=prior, source=facts)
    results = {label: _Result(estimator) for label in methods}
    shared = copy.deepcopy(model)
    adapters: dict[str, Adapter] = {}

    def build(label: str, method: Method) -> Adapter:
        images = source() if source is not None and Need.SOURCE in method.needs else None
        # what does not adapt changes nothing, so it may be the shared copy itself
        inplace = not method.adapts
        adapters[label] = Adapter(shared, method, source=images, head=head, inplace=inplace)
        return adapters[label]

    builders = {label: partial(build, label, method) for label, method in methods.items()}
    done = 0
    for item, steps in stream_through(builders, batches, shared):
        for label, step in steps.items():
            results[label].add(item, steps[SOURCE], step)
        done += len(item.x)
        on_batch(done)
    if not done:
        raise DataError("there is no image to compare the methods on")
    rows = [result.row(label, adapters[label], level) for label, result in results.items()]
    # every pair of models has its own estimate of the source model; a table shows their mean
    pairs = [row.estimate.source for row in rows[1:]] or [rows[0].estimate.source]
    common = sum(pairs) / len(pairs)
    rows = [replace(row, estimate=_with_source(row.estimate, common)) for row in rows]
    return ranked(rows)


def ranked(rows: Iterable[Compared]) -> list[Compared]:
    return sorted(rows, key=lambda row: (row.verdict == "collapsed", -row.change))


def _with_source(estimate: Estimate, source: float) -> Estimate:
    adapted = min(1.0, max(0.0, source + estimate.change))
    return replace(estimate, source=source, adapted=adapted)


class _Result:
    """What one method predicted, beside the source model's predictions."""

    def __init__(self, estimator: Callable[[], Estimator]) -> None:
        self.estimator, self.estimators = estimator, dict[str, Estimator]()  # by domain
        self.seconds: list[float] = []
        self.gained = self.lost = 0
        self.predicted = self.labeled = self.right = torch.zeros(1, dtype=torch.long)
        self.classes: list[NDArray[np.int64]] = []

    def add(self, item: Item, source: Step, adapted: Step) -> None:
        self.estimators.setdefault(item.domain, self.estimator()).update(
            source.logits, adapted.logits
        )
        self.seconds.append(adapted.seconds)
        classes = adapted.logits.shape[1]
        before, after = (predicted_classes(step.logits) for step in (source, adapted))
        self.predicted = self.predicted + after[after >= 0].bincount(minlength=classes)
        self.classes.append(after.numpy())
        y = torch.full_like(after, -1) if item.y is None else item.y
        if len(y) != len(after):
            raise ConfigError(f"a batch of {len(after)} images has {len(y)} labels")
        if int(y.max()) >= classes:
            raise ConfigError(f"label {int(y.max())}, but the model has {classes} classes")
        self.labeled = self.labeled + y[y >= 0].bincount(minlength=classes)
        right, was_right = (((of == y) & (y >= 0)) for of in (after, before))
        self.right = self.right + y[right].bincount(minlength=classes)
        self.gained += int((right & ~was_right).sum())
        self.lost += int((was_right & ~right).sum())

    def row(self, label: str, adapter: Adapter, level: float) -> Compared:
        images, right = int(self.labeled.sum()), int(self.right.sum())
        before = right - self.gained + self.lost
        pair = Measured(images, before, self.gained, self.lost, level) if images else None
        return Compared(
            label,
            combine([e.result() for e in self.estimators.values()]),
            median(self.seconds[1:] or self.seconds),
            right / images if images else None,
            None if label == SOURCE else pair,
            adapter.hyperparameters,
            self.predicted.tolist(),
            self.labeled.tolist(),
            self.right.tolist(),
            classes=np.concatenate(self.classes),
        )


def answer(rows: Iterable[Compared], names: Sequence[str] = ()) -> str:
    """One sentence: does adapting help on these images? `names` are those of the classes."""
    rows = [row for row in rows if not row.reference]
    helping = [row for row in rows if row.verdict == "helps"]
    if helping:
        best, estimate = helping[0], helping[0].estimate
        near = [row.method for row in helping[1:] if best.change - row.change < TIE]
        ties = f" About the same: {', '.join(near)}." if near else ""
        if (known := best.measured or best.answered) is not None:
            return f"Adapting {known}, with {best.method}.{ties}"
        return (
            f"Adapting helps: {best.method} is estimated at {points(estimate.change)} points"
            f" ({points(estimate.low)} to {points(estimate.high)}) against the source model.{ties}"
        )
    if rows and all(row.verdict in ("hurts", "collapsed") for row in rows):
        best = rows[0]
        if (known := best.measured or best.answered) is not None:
            return f"Adapting {known}, with {best.method}, and no method does better."
        return "Adapting hurts: every method here is estimated below the source model. Keep it."
    if rows and all(row.verdict == UNCHANGED for row in rows):
        return "The source model predicted: no method changed a prediction."
    for row in rows:
        if not (row.measured or row.answered) and (why := reason(row.estimate, names)):
            if row.estimate.samples < FEW:
                return f"Cannot tell, {why}."
            return f"Cannot tell, {why}. Give their shares (--prior), or label a few images."
    return "Cannot tell: no method is clearly better than the source model on these images."
