"""The loop: adapters along a stream. Everything that evaluates or deploys consumes it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from ..adapter import Adapter
from ..errors import InputError


class Item(Protocol):
    """One batch: `x` goes to the adapters, whatever else it carries goes around them."""

    @property
    def x(self) -> Tensor: ...  # as the model takes it, on its device
    @property
    def reset(self) -> bool: ...  # every adapter starts afresh before this batch


AnyItem = TypeVar("AnyItem", bound=Item)


@dataclass(frozen=True)
class Step:
    """What one adapter made of one batch."""

    logits: Tensor  # (N, C), float32, on the CPU
    seconds: float  # inside the adapter
    pass_rate: float | None


def stream_through(
    adapters: Mapping[str, Adapter], items: Iterable[AnyItem]
) -> Iterator[tuple[AnyItem, dict[str, Step]]]:
    """Every adapter predicts every batch and learns from it. No label is seen here."""
    for item in items:
        if item.reset:
            for adapter in adapters.values():
                adapter.reset()
        yield item, {name: _step(adapter, item.x) for name, adapter in adapters.items()}


def _step(adapter: Adapter, x: Tensor) -> Step:
    begin = time.perf_counter()
    logits = adapter(x)
    if logits.device.type == "cuda":
        torch.cuda.synchronize(logits.device)
    seconds = time.perf_counter() - begin
    return Step(logits.float().cpu(), seconds, adapter.pass_rate)


@dataclass(frozen=True)
class Labeled:
    """A batch of a DataLoader."""

    x: Tensor
    y: Tensor
    reset: bool = False


def labeled(loader: Iterable[Any], device: torch.device) -> Iterator[Labeled]:
    """The (x, y) of any DataLoader, on the device of the model."""
    for batch in loader:
        if not isinstance(batch, tuple | list) or len(batch) < 2:
            raise InputError(
                f"the loader gives a {type(batch).__name__}; batches of (images, labels) are"
                " expected, as a DataLoader over a classification data set gives them"
            )
        x, y = batch[0], torch.as_tensor(batch[1])
        if y.dim() != 1 or len(y) != len(x) or y.is_floating_point():
            raise InputError(
                f"labels of shape {tuple(y.shape)} and type {y.dtype} for {len(x)} images; one"
                " class number per image is expected"
            )
        yield Labeled(x.to(device), y.cpu())
