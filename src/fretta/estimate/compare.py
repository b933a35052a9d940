"""Several methods over the same images, in one pass over the decoder, ranked.

Without labels the ranking is an estimate; where labels are known, it is measured.

Every method adapts its own copy of the model. After its first batch a copy keeps to itself only
what it adapts; the frozen tensors are those of the source model, so that five methods that adapt
norm layers need the memory of little more than one model.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from ..adapter import Adapter
from ..errors import ConfigError, DataError
from ..method import Method
from ..methods import Source
from . import Estimate, Estimator, Measured, combine
from .words import UNCHANGED, measured_text, points, reason, verdict

REFERENCE, REFERENCE_ROW = "source", "reference"
TIE = 0.01  # of accuracy: estimates of two methods that differ by less are not told apart
OnBatch = Callable[[int], None]  # (images done)


@dataclass(frozen=True)
class Item:
    """One batch: `x` goes to the adapters, the labels (where there are any) around them."""

    x: Tensor  # normalized images
    y: Tensor | None = None  # -1 where an image has no label
    reset: bool = False  # every adapter starts afresh before this batch
    domain: str = ""  # images of one domain are judged together


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

    @property
    def verdict(self) -> str:
        """Measured where labels are known, else estimated."""
        return REFERENCE_ROW if self.reference else verdict(self.estimate, self.measured)

    @property
    def reference(self) -> bool:
        return self.method == REFERENCE

    @property
    def change(self) -> float:
        """By which methods are ranked: an estimate that cannot be trusted is no gain."""
        if self.measured is not None:
            return self.measured.change
        change = self.estimate.change
        return change if self.estimate.uneven is None else min(change, 0.0)

    def to_json(self, names: Sequence[str] = ()) -> dict[str, Any]:
        values = asdict(self.estimate)
        return {
            "method": self.method,
            "verdict": self.verdict,
            "without_labels": REFERENCE_ROW if self.reference else verdict(self.estimate),
            "reason": reason(self.estimate, names),
            "estimator": values.pop("method"),
            **values,
            "accuracy": self.accuracy,
            "measured": None if self.measured is None else self.measured.to_json(),
            "seconds_per_batch": self.seconds_per_batch,
            "hyperparameters": self.hyperparameters,
            "predicted": self.predicted,
            "labeled": self.labeled,
            "right": self.right,
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
    on_batch: OnBatch | None = None,
) -> list[Compared]:
    """Adapt with every method along `batches`; the best first, as far as one can tell.

    methods      label -> method; the source model takes part unasked, as `source`
    source       called once for every method that needs source images
    level        how often the intervals are meant to hold
    temperature  of the source model, where somebody measured it on labeled source images
    prior        share of each class among the images, where somebody knows it
    """
    estimator = partial(Estimator, level=level, temperature=temperature, prior=prior)
    lanes = _lanes(model, methods, source, head, estimator)
    reference = lanes[0]
    done = 0
    for item in batches:
        _check(item)
        logits = reference.step(item)
        for lane in lanes:
            lane.watch(item, logits, logits if lane is reference else lane.step(item))
        done += len(item.x)
        if on_batch is not None:
            on_batch(done)
    if not done:
        raise DataError("there is no image to compare the methods on")
    rows = [lane.row() for lane in lanes]
    # every pair of models has its own estimate of the source model; a table shows one
    pairs = [row.estimate.source for row in rows[1:]] or [rows[0].estimate.source]
    common = sum(pairs) / len(pairs)
    return sorted((_against(common, row) for row in rows), key=_rank)


def _against(source: float, row: Compared) -> Compared:
    adapted = min(1.0, max(0.0, source + row.estimate.change))
    return replace(row, estimate=replace(row.estimate, source=source, adapted=adapted))


def _rank(row: Compared) -> tuple[bool, float]:
    return row.verdict == "collapsed", -row.change


def answer(rows: Iterable[Compared], names: Sequence[str] = ()) -> str:
    """One sentence: does adapting help on these images? `names` are those of the classes."""
    rows = [row for row in rows if not row.reference]
    helping = [row for row in rows if row.verdict == "helps"]
    if helping:
        best, ties = helping[0], _ties(helping[0], helping[1:])
        e = best.estimate
        if best.measured is not None:
            return f"Adapting {_named(best, best.measured)}.{ties}"
        return (
            f"Adapting helps: {best.method} is estimated at {points(e.change)} points"
            f" ({points(e.low)} to {points(e.high)}) against the source model.{ties}"
        )
    if rows and all(row.verdict in ("hurts", "collapsed") for row in rows):
        if rows[0].measured is not None:
            return f"Adapting {_named(rows[0], rows[0].measured)}, and no method does better."
        return "Adapting hurts: every method here is estimated below the source model. Keep it."
    if rows and all(row.verdict == UNCHANGED for row in rows):
        return "The source model predicted: no method changed a prediction."
    for row in rows:
        if row.measured is None and (why := reason(row.estimate, names)):
            return (
                f"Cannot tell: {why}. Give their shares (--prior), or label a few hundred images."
            )
    return "Cannot tell: no method is clearly better than the source model on these images."


def _named(row: Compared, measured: Measured) -> str:
    return f"{measured_text(measured)}, with {row.method}"


def _ties(best: Compared, others: list[Compared]) -> str:
    """Methods so close that their order says nothing."""
    near = [r.method for r in others if best.change - r.change < TIE]
    return f" About the same: {', '.join(near)}." if near else ""


def _check(item: Item) -> None:
    if item.y is not None and len(item.y) != len(item.x):
        raise ConfigError(f"a batch of {len(item.x)} images has {len(item.y)} labels")


# ---- one method ---------------------------------------------------------------------------------


class _Lane:
    """An adapter, made at its first batch so that copies of the model do not pile up."""

    def __init__(
        self,
        label: str,
        build: Callable[[], Adapter],
        shared: nn.Module,
        estimator: Callable[[], Estimator],
    ) -> None:
        self.label, self.build, self.shared = label, build, shared
        self.estimator, self.estimators = estimator, dict[str, Estimator]()
        self.adapter: Adapter | None = None
        self.seconds: list[float] = []  # of each batch
        self.gained = self.lost = 0
        self.predicted = self.labeled = self.right = torch.zeros(0, dtype=torch.long)

    def step(self, item: Item) -> Tensor:
        first = self.adapter is None
        adapter = self.adapter = self.adapter or self.build()
        if item.reset and not first:
            adapter.reset()
        begin = time.perf_counter()
        logits = adapter(item.x)
        if logits.device.type == "cuda":
            torch.cuda.synchronize(logits.device)
        self.seconds.append(time.perf_counter() - begin)
        if first:
            share_frozen(adapter, self.shared)
        return logits.float().cpu()

    def watch(self, item: Item, source: Tensor, adapted: Tensor) -> None:
        """Take a batch into the estimate of its domain and, where it has labels, into counts."""
        if item.domain not in self.estimators:
            self.estimators[item.domain] = self.estimator()
        self.estimators[item.domain].update(source, adapted)
        classes = adapted.shape[1]
        if not len(self.predicted):
            self.predicted = self.labeled = self.right = torch.zeros(classes, dtype=torch.long)
        before, after = source.argmax(1), adapted.argmax(1)
        self.predicted = self.predicted + after.bincount(minlength=classes)
        if item.y is None:
            return
        known = item.y >= 0
        y = item.y[known]
        if len(y) and int(y.max()) >= classes:
            raise ConfigError(f"label {int(y.max())}, but the model has {classes} classes")
        was, now = before[known] == y, after[known] == y
        self.labeled = self.labeled + y.bincount(minlength=classes)
        self.right = self.right + y[now].bincount(minlength=classes)
        self.gained += int((now & ~was).sum())
        self.lost += int((was & ~now).sum())

    def row(self) -> Compared:
        adapter, reference = self.adapter, self.label == REFERENCE
        estimate = combine([e.result() for e in self.estimators.values()])
        images, right = int(self.labeled.sum()), int(self.right.sum())
        before = right - self.gained + self.lost
        pair = Measured(images, before, self.gained, self.lost, estimate.level) if images else None
        return Compared(
            self.label,
            estimate,
            median(self.seconds[1:] or self.seconds),
            right / images if images else None,
            None if reference else pair,
            {} if adapter is None else adapter.hyperparameters,
            self.predicted.tolist(),
            self.labeled.tolist(),
            self.right.tolist(),
        )


def _lanes(
    model: nn.Module,
    methods: Mapping[str, Method],
    source: Callable[[], Iterable[Any]] | None,
    head: str | None,
    estimator: Callable[[], Estimator],
) -> list[_Lane]:
    shared = copy.deepcopy(model)
    wanted: dict[str, Method] = {REFERENCE: Source()}
    for label, method in methods.items():
        if label == REFERENCE and not isinstance(method, Source):
            raise ConfigError(f"{REFERENCE!r} is the unadapted model; call {method.key} otherwise")
        wanted[label] = method
    return [
        _Lane(label, _builder(shared, method, source, head), shared, estimator)
        for label, method in wanted.items()
    ]


def _builder(
    shared: nn.Module,
    method: Method,
    source: Callable[[], Iterable[Any]] | None,
    head: str | None,
) -> Callable[[], Adapter]:
    def build() -> Adapter:
        images = None if source is None else source()
        # the source model changes nothing, so it may be the shared copy itself
        inplace = isinstance(method, Source)
        return Adapter(shared, method, source=images, head=head, inplace=inplace)

    return build


def share_frozen(adapter: Adapter, shared: nn.Module) -> int:
    """Let the adapter use `shared`'s tensors where it adapts none; how many bytes that frees.

    Only parameters: a method may write to buffers, but to no parameter it does not adapt.
    """
    mine = {id(p) for p in adapter.model.adapted.values()}
    freed = 0
    for module, other in _pairs(adapter.model.net, shared):
        if hasattr(module, "_flat_weights"):  # a recurrent layer holds its tensors twice
            continue
        for name, tensor in module._parameters.items():
            theirs = other._parameters.get(name)
            if tensor is None or theirs is None or id(tensor) in mine or tensor is theirs:
                continue
            module._parameters[name] = theirs
            freed += tensor.numel() * tensor.element_size()
    return freed


def _pairs(net: nn.Module, shared: nn.Module) -> Iterator[tuple[nn.Module, nn.Module]]:
    others = dict(shared.named_modules())
    for name, module in net.named_modules():
        if name in others:
            yield module, others[name]
