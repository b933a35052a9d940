"""Time a step of each method against a bare forward and against the floor, in one process.

A shared machine is noisy, so nothing is timed alone: all contenders take turns, round by round,
and a ratio is taken inside each round. Reported are medians and the spread between quartiles.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...api import adapt
from ...errors import ConfigError, FrettaWarning
from ...method import Need
from ...methods import find_method
from ...parts.compute import Compute
from .counts import count, peak_bytes
from .floor import bare_forward, floor_step

FORWARD, FLOOR, FLOOR_ALL = "forward", "floor", "floor (all parameters)"
_MIB = 2**20


@dataclass(frozen=True)
class Timing:
    """One contender."""

    name: str
    milliseconds: float  # median over rounds
    spread: float  # between the quartiles, as a share of the median
    ratio: float  # to the floor, median of the ratios within each round
    own_ratio: float | None  # to the floor over all parameters, for methods that adapt them
    forwards: int | None
    backwards: int | None
    waits: int | None  # values handed to Python in a step
    peak_mib: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class _Contender:
    name: str
    step: Callable[[Tensor], Tensor]
    net: nn.Module | None = None  # whose passes are counted
    everything: bool = False


def contenders(
    net: nn.Module,
    methods: Iterable[str],
    x: Tensor,
    compute: Compute | None,
    settings: Mapping[str, Mapping[str, Any]],
) -> list[_Contender]:
    """The bare forward, the floor, and an adapter per method."""
    found = [_Contender(FORWARD, bare_forward(net)), _Contender(FLOOR, floor_step(net))]
    for key in methods:
        source = [x] if Need.SOURCE in find_method(key).needs else None
        adapter = adapt(net, key, source=source, compute=compute, **settings.get(key, {}))
        found.append(_Contender(key, adapter, adapter.model.net))
    return found


def bench(
    net: nn.Module,
    x: Tensor,
    methods: Sequence[str],
    rounds: int = 7,
    warmup: int = 2,
    compute: Compute | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    on_round: Callable[[int], None] | None = None,
) -> list[Timing]:
    """Interleaved rounds of one step each.

    compute    of every adapter
    settings   hyper-parameters by method
    """
    if rounds < 1:
        raise ConfigError(f"rounds={rounds!r} cannot work; time at least one round")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FrettaWarning)  # of methods that miss std= and the like
        field = contenders(net, methods, x, compute, settings or {})
        for contender in field:
            for _ in range(warmup):
                contender.step(x)
            adapted = len(getattr(contender.step, "adapted", ()))
            contender.everything = adapted == sum(1 for _ in net.parameters())
        if any(c.everything for c in field):
            extra = _Contender(FLOOR_ALL, floor_step(net, everything=True, lr=1e-4))
            field.insert(2, extra)
            for _ in range(warmup):
                extra.step(x)
        seconds: dict[str, list[float]] = {c.name: [] for c in field}
        for number in range(rounds):
            for contender in field if number % 2 == 0 else reversed(field):
                seconds[contender.name].append(_timed(contender.step, x))
            if on_round is not None:
                on_round(number + 1)
        return [_timing(c, x, seconds) for c in field]


def _timed(step: Callable[[Tensor], Tensor], x: Tensor) -> float:
    if x.device.type == "cuda":
        torch.cuda.synchronize(x.device)
    begin = time.perf_counter()
    step(x)
    if x.device.type == "cuda":
        torch.cuda.synchronize(x.device)
    return time.perf_counter() - begin


def _timing(contender: _Contender, x: Tensor, seconds: dict[str, list[float]]) -> Timing:
    own = seconds[contender.name]
    passes = None if contender.net is None else count(contender.net, lambda: contender.step(x))
    return Timing(
        name=contender.name,
        milliseconds=1000 * statistics.median(own),
        spread=_spread(own),
        ratio=_ratio(own, seconds[FLOOR]),
        own_ratio=_ratio(own, seconds[FLOOR_ALL]) if contender.everything else None,
        forwards=None if passes is None else passes.forwards,
        backwards=None if passes is None else passes.backwards,
        waits=None if passes is None else passes.waits,
        peak_mib=peak_bytes(lambda: contender.step(x), x.device) / _MIB,
    )


def _ratio(own: list[float], floor: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(own, floor, strict=True))


def _spread(values: list[float]) -> float:
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / middle
