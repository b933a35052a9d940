"""How fast is a step? Timed against a bare forward and against the floor, and counted.

A shared machine is noisy, so nothing is timed alone: all steps take turns in one process, round by
round, and a ratio is taken inside each round. Reported are medians and the spread of the quartiles.
"""

from __future__ import annotations

import copy
import os
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from ..adapter import Adapter
from ..api import adapt
from ..errors import ConfigError, FrettaWarning, MissingExtraError
from ..method import Need
from ..methods import find_method
from ..parts.compute import Compute

Step = Callable[[Tensor], Tensor]

FORWARD, FLOOR, FLOOR_ALL = "forward", "floor", "floor (all parameters)"


# ---- the floor: what no method that learns can undercut, in plain PyTorch -----------------------


def bare_forward(net: nn.Module) -> Step:
    """A prediction in eval mode and nothing else."""
    net = copy.deepcopy(net).eval().requires_grad_(False)

    def step(x: Tensor) -> Tensor:
        with torch.no_grad():
            output: Tensor = net(x)
        return output

    return step


def floor_step(net: nn.Module, everything: bool = False, lr: float = 1e-3) -> Step:
    """One forward, the entropy of its output, one backward and one step of Adam.

    With `everything` all parameters learn, otherwise only scale and shift of norm layers.
    """
    net = copy.deepcopy(net).eval().requires_grad_(everything)
    for layer in net.modules():
        if isinstance(layer, _BatchNorm | nn.GroupNorm | nn.LayerNorm):
            layer.requires_grad_(True)
        if isinstance(layer, _BatchNorm):  # batch statistics, also in eval mode
            layer.train()
            layer.track_running_stats = False
            layer.running_mean = layer.running_var = None
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=lr)

    def step(x: Tensor) -> Tensor:
        logits: Tensor = net(x)
        loss = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return logits.detach()

    return step


# ---- counted: passes, operators, waits, bytes ---------------------------------------------------

# operators that hand a value to Python, for which an accelerator must finish all it was given
_WAITS = ("_local_scalar_dense", "nonzero", "unique", "_unique2", "unique_dim", "is_nonzero")


@dataclass
class Counts:
    """One step: passes of the network, and operators by name."""

    forwards: int = 0
    backwards: int = 0
    weight_gradients: int = 0  # convolutions whose weight gradient was computed
    operators: Counter[str] = field(default_factory=Counter)

    @property
    def waits(self) -> int:
        """How often the host waits for a result."""
        return sum(self.operators[name] for name in _WAITS)


class _CountOperators(TorchDispatchMode):
    """Sees every operator of forward and backward."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts = counts

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        self.counts.operators[name] += 1
        if name == "convolution_backward" and args[-1][1]:  # output_mask: input, weight, bias
            self.counts.weight_gradients += 1
        return func(*args, **(kwargs or {}))


def count(net: nn.Module, step: Callable[[], Any]) -> Counts:
    """Run the step once and count. `net` is the module whose forwards count."""
    counts = Counts()
    # `loss.backward()` and `torch.autograd.grad` both call this function of the engine
    run = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

    def forward(*_: Any) -> None:
        counts.forwards += 1

    def backward(*args: Any, **kwargs: Any) -> Any:
        counts.backwards += 1
        return run(*args, **kwargs)

    hook = net.register_forward_hook(forward)
    torch.autograd._engine_run_backward = backward  # type: ignore[attr-defined]
    try:
        with _CountOperators(counts):
            step()
    finally:
        torch.autograd._engine_run_backward = run  # type: ignore[attr-defined]
        hook.remove()
    return counts


def peak_bytes(step: Callable[[], Any], device: torch.device) -> int:
    """The most memory that was held at once during the step, above what was held before it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        return torch.cuda.max_memory_allocated(device) - before
    cpu = [ProfilerActivity.CPU]
    with _quiet_stderr(), profile(activities=cpu, profile_memory=True) as profiled:
        step()
    held = peak = 0
    events = (e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]")
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """The profiler writes a log to file descriptor 2, past Python."""
    sys.stderr.flush()
    with open(os.devnull, "w") as devnull:
        stderr = os.dup(2)
        os.dup2(devnull.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


# ---- timed --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """One kind of step."""

    name: str
    milliseconds: float  # median over rounds
    spread: float  # between the quartiles, as a share of the median
    ratio: float  # to the floor, median of the ratios within each round
    own_ratio: float | None  # of a method, to as many passes as it makes, at the floor's price
    forwards: int | None
    backwards: int | None
    waits: int | None  # values handed to Python in a step
    peak_mib: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


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
    """Interleaved rounds of one step each: bare forward, floor, and an adapter per method.

    compute    of every adapter
    settings   hyper-parameters by method
    """
    if rounds < 1:
        raise ConfigError(f"rounds={rounds!r} cannot work; time at least one round")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FrettaWarning)  # of methods that miss std= and the like
        adapters: dict[str, Adapter] = {}
        for name in methods:
            source = [x] if Need.SOURCE in find_method(name).needs else None
            given = (settings or {}).get(name, {})
            adapters[name] = adapt(net, name, source=source, compute=compute, **given)
            adapters[name](x)
        parameters = sum(1 for _ in net.parameters())
        adapts_all = {name for name, a in adapters.items() if len(a.adapted) == parameters}
        steps: dict[str, Step] = {FORWARD: bare_forward(net), FLOOR: floor_step(net)}
        if adapts_all:
            steps[FLOOR_ALL] = floor_step(net, everything=True, lr=1e-4)
        steps |= adapters
        for step in steps.values():
            for _ in range(warmup):
                step(x)
        seconds: dict[str, list[float]] = {name: [] for name in steps}
        for number in range(1, rounds + 1):
            for name in steps if number % 2 else reversed(steps):
                seconds[name].append(_seconds(steps[name], x))
            if on_round is not None:
                on_round(number)
        timings = []
        for name, step in steps.items():
            adapter, own = adapters.get(name), seconds[name]
            counts = count(adapter.model.net, partial(step, x)) if adapter else None
            floor = seconds[FLOOR_ALL if name in adapts_all else FLOOR]
            timings.append(
                Timing(
                    name=name,
                    milliseconds=1000 * statistics.median(own),
                    spread=_spread(own),
                    ratio=_ratio(own, seconds[FLOOR]),
                    own_ratio=None
                    if counts is None
                    else _ratio(own, _passes(counts, seconds[FORWARD], floor)),
                    forwards=None if counts is None else counts.forwards,
                    backwards=None if counts is None else counts.backwards,
                    waits=None if counts is None else counts.waits,
                    peak_mib=peak_bytes(partial(step, x), x.device) / 2**20,
                )
            )
        return timings


def _seconds(step: Step, x: Tensor) -> float:
    wait = torch.cuda.synchronize if x.device.type == "cuda" else lambda device: None
    wait(x.device)
    begin = time.perf_counter()
    step(x)
    wait(x.device)
    return time.perf_counter() - begin


def _ratio(own: list[float], floor: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(own, floor, strict=True))


def _passes(counts: Counts, forward: list[float], floor: list[float]) -> list[float]:
    """What so many forwards and backwards cost in each round; a floor is one of each."""
    F, B = counts.forwards, counts.backwards
    return [F * f + B * (both - f) for f, both in zip(forward, floor, strict=True)]


def _spread(values: list[float]) -> float:
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / middle


def plot(timings: Sequence[Timing], title: str, path: Path) -> None:
    """Bars of step / floor, shortest first; the floor is a line."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError("matplotlib", "report", "a plot of the timings") from error
    shown = sorted((t for t in timings if t.name != FLOOR), key=lambda t: -t.ratio)
    figure = Figure(figsize=(6, 0.9 + 0.35 * len(shown)), layout="constrained")
    axes = figure.add_subplot()
    colors = ["#999999" if t.name in (FORWARD, FLOOR_ALL) else "#0072B2" for t in shown]
    bars = axes.barh([t.name for t in shown], [t.ratio for t in shown], color=colors)
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.axvline(1, color="black", linewidth=1, linestyle="--")
    axes.margins(x=0.12)
    axes.set_xlabel("time of a step / floor (forward, entropy, backward, Adam)")
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
