"""What a step does, counted instead of timed: passes, operators, waits, bytes."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

# operators that hand a value to Python, for which an accelerator must finish all it was given
_WAITS = {"_local_scalar_dense", "nonzero", "unique", "_unique2", "unique_dim", "is_nonzero"}


@dataclass
class Counts:
    """One step: passes of the whole network, and operators by name."""

    forwards: int = 0
    backwards: int = 0
    weight_gradients: int = 0  # convolutions whose weight gradient was computed
    operators: Counter[str] = field(default_factory=Counter)

    @property
    def waits(self) -> int:
        """How often the host waits for a result."""
        return sum(n for name, n in self.operators.items() if name in _WAITS)


class _Watch(TorchDispatchMode):
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

    def passed(*_: Any) -> None:
        counts.forwards += 1

    hook = net.register_forward_hook(passed)
    try:
        with _backwards(counts), _Watch(counts):
            step()
    finally:
        hook.remove()
    return counts


@contextmanager
def _backwards(counts: Counts) -> Iterator[None]:
    """`loss.backward()` and `torch.autograd.grad` both enter the engine through one door."""
    run = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

    def counted(*args: Any, **kwargs: Any) -> Any:
        counts.backwards += 1
        return run(*args, **kwargs)

    torch.autograd._engine_run_backward = counted  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.autograd._engine_run_backward = run  # type: ignore[attr-defined]


def peak_bytes(step: Callable[[], Any], device: torch.device) -> int:
    """The most memory that was held at once during the step, above what was held before it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        return torch.cuda.max_memory_allocated(device) - before
    with _quiet_stderr(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step()
    held = peak = 0
    events = (e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]")
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """The profiler writes its own diary to file descriptor 2, past Python."""
    sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # there is none
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
