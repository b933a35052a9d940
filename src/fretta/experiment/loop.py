"""The loop: adapters along batches. Everything that evaluates or deploys consumes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..adapter import Adapter
from ..errors import InputError


@dataclass(frozen=True)
class Item:
    """A batch of a stream, a DataLoader or a list of files."""

    x: Tensor  # as the model takes it, on its device; all else goes around the adapters
    y: Tensor | None = None  # labels, on the CPU; -1 where an image has none
    reset: bool = False  # every adapter, before this batch
    domain: str = ""  # "mixed" where the images come from several
    domains: NDArray[Any] | None = None  # number of each image's domain in the data set
    number: int = 0  # of the batch in the stream
    loading: float = 0.0  # seconds it took to read, corrupt and copy


@dataclass(frozen=True)
class Step:
    """What one adapter made of one batch."""

    logits: Tensor  # (N, C), float32, on the CPU
    seconds: float  # inside the adapter
    pass_rate: float | None


def stream_through(
    adapters: Mapping[str, Adapter | Callable[[], Adapter]],
    batches: Iterable[Item],
    shared: nn.Module | None = None,
) -> Iterator[tuple[Item, dict[str, Step]]]:
    """Every adapter predicts every batch and learns from it. No label is seen here.

    adapters   by name; one that is given as a function is made at the first batch
    shared     the source model: after its first batch an adapter uses the tensors of this one where
               it adapts none, so that many adapters need little more memory than one
    """
    made: dict[str, Adapter] = {}
    for batch in batches:
        steps = {}
        for name, given in adapters.items():
            first = name not in made
            if first:
                made[name] = given if isinstance(given, Adapter) else given()
            if batch.reset:
                made[name].reset()
            steps[name] = _step(made[name], batch.x)
            if first and shared is not None:
                share_frozen(made[name], shared)
        yield batch, steps


def _step(adapter: Adapter, x: Tensor) -> Step:
    begin = time.perf_counter()
    logits = adapter(x)
    if logits.device.type == "cuda":
        torch.cuda.synchronize(logits.device)
    seconds = time.perf_counter() - begin
    return Step(logits.float().cpu(), seconds, adapter.pass_rate)


def share_frozen(adapter: Adapter, shared: nn.Module) -> int:
    """Let the adapter use `shared`'s tensors where it adapts none; how many bytes that frees.

    Only parameters: a method may write to buffers, but to no parameter it does not adapt.
    """
    mine = {id(p) for p in adapter.model.adapted.values()}
    others = dict(shared.named_modules())
    freed = 0
    for module_name, module in adapter.model.net.named_modules():
        # a recurrent layer holds its tensors twice
        if module_name not in others or hasattr(module, "_flat_weights"):
            continue
        for name, tensor in module._parameters.items():
            theirs = others[module_name]._parameters.get(name)
            if tensor is None or theirs is None or id(tensor) in mine or tensor is theirs:
                continue
            module._parameters[name] = theirs
            freed += tensor.numel() * tensor.element_size()
    return freed


def labeled(loader: Iterable[Any], device: torch.device) -> Iterator[Item]:
    """The (x, y) of any DataLoader, on the device of the model."""
    for number, batch in enumerate(loader):
        if not isinstance(batch, tuple | list) or len(batch) < 2:
            raise InputError(
                f"the loader gives a {type(batch).__name__}; batches of (images, labels) are"
                " expected, as a DataLoader over a classification data set gives them"
            )
        x, y = batch[0], torch.as_tensor(batch[1])
        numbers = not y.is_floating_point() and y.dtype != torch.bool
        if y.dim() != 1 or len(y) != len(x) or not numbers:
            raise InputError(
                f"labels of shape {tuple(y.shape)} and type {y.dtype} for {len(x)} images; one"
                " class number per image is expected"
            )
        yield Item(x.to(device), y.long().cpu(), number=number)
