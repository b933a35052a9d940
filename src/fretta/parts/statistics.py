"""Whose mean and variance batch norms use: moving statistics that begin at the source's.

`settle(x)` predicts a batch and moves the statistics along; between batches they stay where they
are, in the running buffers of the layers. MovingStatistics average over the last images;
AdaptiveStatistics (adaptive.py) follow the stream as far as it can be told from noise. The
statistics of the source, of the batch, and a fixed mix of both need no memory: see norm.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import StateError
from .losses import wide
from .norm import before_forward

Memory = dict[str, Tensor]  # (c,) per channel of all layers, (C, c) per class, (L, 2) per layer
Pair = tuple[Tensor, Tensor]  # mean and variance
Network = Callable[[Tensor], Tensor]
Settled = tuple[Tensor, Memory, Pair]  # logits, what is remembered, statistics in use


def image_moments(x: Tensor, n: int) -> Pair | None:
    """(n, c) mean and mean square of each of n images and channels, of what enters a batch norm.

    Its rows may be tokens, those of an image one after the other (LeViT). None: they are neither.
    """
    x = wide(x.detach())
    axes = list(range(2, x.dim()))
    if len(x) != n:
        if len(x) % n:
            return None
        x, axes = x.unflatten(0, (n, -1)), [1, *(axis + 1 for axis in axes)]
    return (x.mean(axes), x.square().mean(axes)) if axes else (x, x.square())


class Channels:
    """The channels of some layers, side by side: what the source has there, and means by layer."""

    def __init__(self, mean: Tensor, var: Tensor, eps: Tensor, sizes: list[int]) -> None:
        self.mean, self.var, self.sizes = mean, var, sizes
        self.unit = var + eps  # distances are measured in it
        counts = torch.tensor(sizes, device=mean.device)
        self.owner = torch.repeat_interleave(torch.arange(len(sizes), device=mean.device), counts)
        one = F.one_hot(self.owner, len(sizes)).to(mean)
        self.average = one / counts.to(mean).clamp(min=1)  # (c, L)

    def by_layer(self, values: Tensor) -> Tensor:
        """(..., c) -> (..., L): means over the channels of each layer."""
        return values.mean(-1, keepdim=True) if len(self.sizes) == 1 else values @ self.average

    def lerp(self, a: Tensor, b: Tensor, share: Tensor) -> Tensor:
        """From a to b by a share per layer, (L,)."""
        return torch.lerp(a, b, share if len(self.sizes) == 1 else share[self.owner])


class Statistics(ABC):
    """The statistics of all batch norms of a network, as state: reset, save, restore."""

    per_layer: ClassVar[tuple[str, ...]] = ()  # what is remembered per layer, not per channel

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        self.names, self.layers = list(layers), list(layers.values())
        self._follow()

    def _follow(self) -> None:
        """Take what the layers hold now as the source's."""
        modules: list[Any] = self.layers
        self.source: list[Pair] = [(m.running_mean, m.running_var) for m in modules]
        like = self.source[0][0]
        wide = torch.float64 if like.dtype == torch.float64 else torch.float32
        mean, var = (torch.cat([pair[i] for pair in self.source]).to(wide) for i in (0, 1))
        sizes = [len(pair[0]) for pair in self.source]
        eps = torch.cat([mean.new_full((n,), m.eps) for n, m in zip(sizes, modules, strict=True)])
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        self.slices = [slice(end - n, end) for end, n in zip(ends, sizes, strict=True)]
        self.all = Channels(mean, var, eps, sizes)
        self.each = [
            Channels(mean[part], var[part], eps[part], [n])
            for part, n in zip(self.slices, sizes, strict=True)
        ]
        self.reset()

    def reset(self) -> None:
        """Back to the source's."""
        self.used: Pair = (self.all.mean, self.all.var)
        self.memory = self.begin()
        for index in range(len(self.layers)):
            self._put(index, self.source[index])

    @abstractmethod
    def begin(self) -> Memory:
        """What is remembered before the first batch."""

    @abstractmethod
    def move(self, at: Channels, memory: Memory, moments: Pair) -> tuple[Memory, Pair]:
        """New memory and statistics, from the moments of the images of a batch."""

    def _moved(self, at: Channels, memory: Memory, moments: Pair) -> tuple[Memory, Pair]:
        with torch.autocast(at.mean.device.type, enabled=False):  # in the caller's: too coarse
            return self.move(at, memory, moments)

    def settle(self, model: Network, x: Tensor) -> Tensor:
        """Logits of a batch, with statistics that have moved along."""
        with self.guarded():
            logits, memory, used = self.sequential(model, x)
            self.commit(memory, used)
        return logits

    # ---- passes ------------------------------------------------------------------------------

    def sequential(self, model: Network, x: Tensor) -> Settled:
        """A forward in which every layer moves, then normalizes: logits, memory, statistics."""
        found: dict[int, tuple[Memory, Pair]] = {}

        def watch(index: int, entering: Tensor) -> None:
            if (moments := image_moments(entering, len(x))) is not None:
                found[index] = self._moved(self.each[index], self._part(index), moments)
                self._put(index, found[index][1])

        with self._watching(watch):
            logits = model(x)
        pieces = [found.get(i, (self._part(i), self._used(i))) for i in range(len(self.layers))]
        memory = {
            key: torch.cat([piece[0][key] for piece in pieces], 0 if key in self.per_layer else -1)
            for key in self.memory
        }
        mean, var = (torch.cat([piece[1][i] for piece in pieces]) for i in (0, 1))
        return logits, memory, (mean, var)

    def recorded(self, model: Network, x: Tensor) -> tuple[Tensor, Pair]:
        """A forward with the statistics as they are: logits, and the moments of every channel."""
        found: dict[int, Pair] = {}

        def watch(index: int, entering: Tensor) -> None:
            if (moments := image_moments(entering, len(x))) is not None:
                found[index] = moments

        with self._watching(watch):
            logits = model(x)
        for index in range(len(self.layers)):
            if index not in found:  # unused in this forward, or not by images: as expected
                mean, var = (value.expand(len(x), -1) for value in self._used(index))
                found[index] = (mean, var + mean.square())
        mean, square = (
            torch.cat([found[j][i] for j in range(len(self.layers))], 1) for i in (0, 1)
        )
        return logits, (mean, square)

    def _part(self, index: int) -> Memory:
        """What is remembered of one layer."""
        channels, row = self.slices[index], slice(index, index + 1)
        memory = self.memory.items()
        return {k: v[row] if k in self.per_layer else v[..., channels] for k, v in memory}

    def _used(self, index: int) -> Pair:
        part = self.slices[index]
        return self.used[0][part], self.used[1][part]

    def _watching(self, watch: Callable[[int, Tensor], None]) -> AbstractContextManager[None]:
        layers = dict(enumerate(self.layers))
        return before_forward(layers, lambda index, _, inputs: watch(index, inputs[0]))

    # ---- what the layers hold ----------------------------------------------------------------

    def _put(self, index: int, statistics: Pair) -> None:
        module: Any = self.layers[index]
        like = self.source[index][0]
        module.running_mean, module.running_var = (value.to(like) for value in statistics)

    def _put_used(self) -> None:
        for index in range(len(self.layers)):
            mean, var = self._used(index)
            self._put(index, (mean.clone(), var.clone()))  # not a view, for export

    def commit(self, memory: Memory, used: Pair) -> None:
        self.memory, self.used = memory, used
        self._put_used()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """A forward that fails leaves the statistics as they were."""
        try:
            yield
        except BaseException:
            self._put_used()
            raise

    @contextmanager
    def as_source(self) -> Iterator[None]:
        """While active, the layers hold the source's statistics."""
        for index, pair in enumerate(self.source):
            self._put(index, pair)
        try:
            yield
        finally:
            self._put_used()

    def apply_to_source(self, fn: Callable[[Tensor], Tensor]) -> None:
        """After a move to another device or dtype: begin again at the source, there."""
        for layer, (mean, var) in zip(self.layers, self.source, strict=True):
            module: Any = layer
            module.running_mean, module.running_var = fn(mean), fn(var)
        self._follow()

    # ---- state -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        mean, var = self.used
        return {"layers": self.names, "memory": self.memory, "mean": mean, "var": var}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        memory, like = state["memory"], self.all.mean
        shapes = {key: value.shape for key, value in self.memory.items()}
        if state["layers"] != self.names or {k: v.shape for k, v in memory.items()} != shapes:
            raise StateError("the saved statistics are those of another model")
        memory = {key: value.to(like) for key, value in memory.items()}
        self.commit(memory, (state["mean"].to(like), state["var"].to(like)))


class MovingStatistics(Statistics):
    """An exponential average over the last `clock` images that begins at the source's."""

    clock = 128.0

    def begin(self) -> Memory:
        return {"mean": self.all.mean, "square": self.all.var + self.all.mean.square()}

    def move(self, at: Channels, memory: Memory, moments: Pair) -> tuple[Memory, Pair]:
        rate = 1 - math.exp(-len(moments[0]) / self.clock)
        mean = torch.lerp(memory["mean"], moments[0].mean(0), rate)
        square = torch.lerp(memory["square"], moments[1].mean(0), rate)
        return {"mean": mean, "square": square}, (mean, positive(square - mean.square(), at.var))


def positive(var: Tensor, source: Tensor) -> Tensor:
    """A variance that is at least a hundredth of the source's."""
    return torch.maximum(var, 0.01 * source)
