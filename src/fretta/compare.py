"""Several methods over the same images, in one pass over the decoder, ranked without labels.

Every method adapts its own copy of the model. After its first batch a copy keeps to itself only
what it adapts; the frozen tensors are those of the source model, so that five methods that adapt
norm layers need the memory of little more than one model.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .adapter import Adapter
from .errors import ConfigError, DataError
from .estimate import Estimate, Estimator, combine
from .method import Method
from .methods import Source

REFERENCE = "source"
TIE = 0.01  # of accuracy: estimates of two methods that differ by less are not told apart
OnBatch = Callable[[int], None]  # (images done)


@dataclass(frozen=True)
class Item:
    """One batch: `x` goes to the adapters, the labels (where there are any) around them."""

    x: Tensor  # normalised images
    y: Tensor | None = None  # -1 where an image has no label
    reset: bool = False  # every adapter starts afresh before this batch
    domain: str = ""  # images of one domain are judged together


@dataclass(frozen=True)
class Compared:
    """One method. `accuracy` is None where nothing was labelled."""

    method: str
    estimate: Estimate
    seconds_per_batch: float
    accuracy: float | None = None
    hyperparameters: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """What to tell somebody who has no labels."""
        if self.method == REFERENCE:
            return "reference"
        if self.estimate.collapsed:
            return "collapsed"
        return {True: "helps", False: "hurts", None: "cannot tell"}[self.estimate.helps]

    def to_json(self) -> dict[str, Any]:
        values = asdict(self.estimate)
        return {
            "method": self.method,
            "verdict": self.verdict,
            "estimator": values.pop("method"),
            **values,
            "accuracy": self.accuracy,
            "seconds_per_batch": self.seconds_per_batch,
            "hyperparameters": self.hyperparameters,
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
    on_batch: OnBatch | None = None,
) -> list[Compared]:
    """Adapt with every method along `batches`; the best first, as far as one can tell.

    methods      label -> method; the source model takes part unasked, as `source`
    source       called once for every method that needs source images
    level        how often the intervals are meant to hold
    temperature  of the source model, where somebody measured it on labelled source images
    """
    lanes = _lanes(model, methods, source, head, level, temperature)
    reference, others = lanes[0], lanes[1:]
    done = 0
    for item in batches:
        _check(item)
        logits = reference.step(item)
        reference.watch(item.domain, logits, logits)
        for lane in others:
            lane.watch(item.domain, logits, lane.step(item))
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
    return row.estimate.collapsed, -row.estimate.change


def answer(rows: Iterable[Compared]) -> str:
    """One sentence: does adapting help on these images?"""
    rows = [row for row in rows if row.method != REFERENCE]
    helping = [row for row in rows if row.verdict == "helps"]
    if helping:
        best = helping[0]
        return (
            f"Adapting helps: {best.method} is estimated at {_points(best.estimate.change)} points"
            f" ({_points(best.estimate.low)} to {_points(best.estimate.high)}) against the source"
            f" model.{_ties(best, helping[1:])}"
        )
    if rows and all(row.verdict in ("hurts", "collapsed") for row in rows):
        return "Adapting hurts: every method here is estimated below the source model. Keep it."
    return "Cannot tell: no method is clearly better than the source model on these images."


def _ties(best: Compared, others: list[Compared]) -> str:
    """Methods so close that their order says nothing."""
    near = [r.method for r in others if best.estimate.change - r.estimate.change < TIE]
    return f" About the same: {', '.join(near)}." if near else ""


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


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
        self.seconds, self.batches, self.right, self.labelled = 0.0, 0, 0, 0

    def step(self, item: Item) -> Tensor:
        first = self.adapter is None
        adapter = self.adapter = self.adapter or self.build()
        if item.reset and not first:
            adapter.reset()
        begin = time.perf_counter()
        logits = adapter(item.x)
        if logits.device.type == "cuda":
            torch.cuda.synchronize(logits.device)
        self.seconds += time.perf_counter() - begin
        self.batches += 1
        if first:
            share_frozen(adapter, self.shared)
        logits = logits.float().cpu()
        if item.y is not None:
            known = item.y >= 0
            self.labelled += int(known.sum())
            self.right += int((logits.argmax(1) == item.y)[known].sum())
        return logits

    def watch(self, domain: str, source: Tensor, adapted: Tensor) -> None:
        if domain not in self.estimators:
            self.estimators[domain] = self.estimator()
        self.estimators[domain].update(source, adapted)

    def row(self) -> Compared:
        adapter = self.adapter
        return Compared(
            self.label,
            combine([e.result() for e in self.estimators.values()]),
            self.seconds / self.batches,
            self.right / self.labelled if self.labelled else None,
            {} if adapter is None else adapter.hyperparameters,
        )


def _lanes(
    model: nn.Module,
    methods: Mapping[str, Method],
    source: Callable[[], Iterable[Any]] | None,
    head: str | None,
    level: float,
    temperature: float,
) -> list[_Lane]:
    shared = copy.deepcopy(model)
    wanted: dict[str, Method] = {REFERENCE: Source()}
    for label, method in methods.items():
        if label == REFERENCE and not isinstance(method, Source):
            raise ConfigError(f"{REFERENCE!r} is the unadapted model; call {method.key} otherwise")
        wanted[label] = method
    return [
        _Lane(
            label,
            _builder(shared, method, source, head),
            shared,
            partial(Estimator, level=level, temperature=temperature),
        )
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
