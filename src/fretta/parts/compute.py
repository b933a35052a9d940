"""How the network is computed: memory layout and precision. Neither changes what is computed."""

from __future__ import annotations

import functools
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..errors import ConfigError

LAYOUTS = ("auto", "contiguous", "channels_last")
PRECISIONS = ("bfloat16",)


@dataclass(frozen=True)
class Compute:
    """How the network is computed. What it computes changes by rounding only.

    layout      memory layout of convolutions: "auto" (channels-last where it is faster),
                "contiguous" or "channels_last"
    precision   "bfloat16" runs the network under autocast; None is the model's own precision
    compile     a backend of torch.compile ("inductor") for the blocks of the network; None: none
    last_norms  adapt only so many norm layers, from the end: less memory, a shorter backward
    share       what is not adapted is the memory of the given model, not a copy: many adapters of
                one model, which must not change meanwhile
    """

    layout: str = "auto"
    precision: str | None = None
    compile: str | None = None
    last_norms: int | None = None
    share: bool = False

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            choices = ", ".join(LAYOUTS)
            raise ConfigError(f"layout={self.layout!r} is unknown; choose from {choices}")
        if self.precision not in (None, *PRECISIONS):
            raise ConfigError(
                f"precision={self.precision!r} is unknown; choose 'bfloat16', or None for the"
                " model's own"
            )
        last = self.last_norms
        if last is not None and (isinstance(last, bool) or last < 1):
            raise ConfigError(f"last_norms={last!r} cannot work; adapt at least 1 layer")


# Some virtual machines announce matrix instructions and die when one is used: a child tries.
_PROBE = """
import torch
x = torch.randn(8, 64, requires_grad=True)
with torch.autocast("cpu", torch.bfloat16):
    torch.nn.Linear(64, 10)(x).sum().backward()
"""


def find_device(name: str | None = None) -> torch.device:
    """The device of that name, tried out. Without a name: a GPU if there is one, else the CPU."""
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device={name!r} cannot be used here: {reason}") from error
    return device


def choose_layout(net: nn.Module, wanted: str, free: bool) -> str | None:
    """The name of torch's memory format of convolutions and images (a format itself cannot be
    saved by `torch.save`); None leaves both as they come.

    `auto` is a rule and not a measurement, so that a stream can be resumed bit for bit anywhere:
    on CPUs channels-last steps took less time than contiguous ones, or hardly more, for the
    convolutional networks tried (docs/performance.md has the ratios). Group norm is left alone
    (its backward is slow or crashes there). So is whatever the caller does not leave `free`.
    """
    if wanted == "channels_last":
        return wanted
    if wanted == "contiguous" or not free:
        return None
    kinds = [type(m) for m in net.modules()]
    example = next(net.parameters(), None)
    fits = nn.Conv2d in kinds and not any(issubclass(k, nn.GroupNorm) for k in kinds)
    on_cpu = example is not None and example.device.type == "cpu"
    return "channels_last" if fits and on_cpu else None


def laid_out(x: Tensor, layout: str | None) -> Tensor:
    if layout is None or x.dim() != 4:
        return x
    return x.contiguous(memory_format=getattr(torch, layout))


def check_precision(precision: str | None, device: torch.device) -> None:
    """Raise now what would otherwise be a crash of the process at the first batch."""
    if precision is not None and device.type == "cpu" and not _survives_bfloat16():
        raise ConfigError(
            "bfloat16 crashes on this machine: its processor announces matrix instructions (AMX)"
            " that it cannot run. Set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before Python starts, or"
            " leave precision=None"
        )


@functools.cache
def _survives_bfloat16() -> bool:
    return subprocess.run([sys.executable, "-c", _PROBE], capture_output=True).returncode == 0


def autocasting(precision: str | None, device: torch.device) -> AbstractContextManager[object]:
    if precision is None:
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def compile_blocks(net: nn.Module, head: str | None, backend: str) -> None:
    """Compile the children of the network in place, all but the one that holds the head.

    Names of parameters stay, and what enters the head can still be seen: a hook inside compiled
    code may be ignored.
    """
    top = None if head is None else head.partition(".")[0]
    for name, child in net.named_children():
        if name != top:
            child.compile(backend=backend)
