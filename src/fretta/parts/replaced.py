"""Batch norms that normalize by other statistics than their own, for the length of a forward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .losses import wide
from .norm import batch_norms, before_forward
from .statistics import Pair

Choice = Callable[[str, Tensor, Pair], Pair]
Replaced = AbstractContextManager[None]


def measured(x: Tensor, correction: int = 1) -> Pair:
    """Mean and variance of each channel, in float32 at least; correction 1 is the unbiased one."""
    axes = [axis for axis in range(x.dim()) if axis != 1]
    mean, var = moments(wide(x), axes, correction)
    return mean.flatten(), var.flatten()


def moments(x: Tensor, axes: list[int], correction: int = 1) -> Pair:
    """Mean and variance over axes, which stay. On a CPU this is faster than `torch.var_mean`."""
    mean = x.mean(axes, keepdim=True)
    count = x.numel() // mean.numel()
    return mean, (x - mean).square().sum(axes, keepdim=True) / (count - correction)


def single_valued(x: Tensor) -> bool:
    """One value per channel, which has no variance."""
    return x.numel() == x.shape[1]


def replaced_statistics(module: nn.Module, choose: Choice) -> Replaced:
    """While active, batch norms use `choose(name, input, source statistics)`, as constants.

    Not asked where there is one value per channel: there the source statistics stay.
    """

    def before(name: str, layer: Any, own: Pair, inputs: tuple[Any, ...]) -> None:
        x = inputs[0].detach()
        _put(layer, own if single_valued(x) else choose(name, x, own), own)

    return _in_eval_mode(module, before)


def mixed_statistics(module: nn.Module, alpha: float) -> Replaced:
    """While active, batch norms use (1 - alpha) · source + alpha · batch statistics."""

    def mix(name: str, x: Tensor, own: Pair) -> Pair:
        mean, var = measured(x, correction=0)
        return own[0] + alpha * (mean - own[0]), own[1] + alpha * (var - own[1])

    return replaced_statistics(module, mix)


def renormalized(module: nn.Module, choose: Choice) -> Replaced:
    """While active, batch norms compute (x - μ̂) / ŝ, with the gradient of batch norm.

    y = x̂ r + d, x̂ the input normalized by the batch, r = s_b / ŝ and d = (μ_b - μ̂) / ŝ constants
    (batch renormalization, Ioffe 2017). `choose(name, input, (μ_b, s_b))` gives (μ̂, ŝ): here the
    second is a standard deviation, ε included. Scale and shift follow as always.
    """

    def before(name: str, layer: Any, own: Pair, inputs: tuple[Any, ...]) -> Any:
        x = inputs[0]
        if single_valued(x):
            layer.running_mean, layer.running_var = own
            return None
        mean, var = measured(x.detach(), correction=0)
        scale = (var + layer.eps).sqrt()
        moving_mean, moving_scale = choose(name, x, (mean, scale))
        shape = (1, -1, *[1] * (x.dim() - 2))
        r = (scale / moving_scale).view(shape)
        d = ((mean - moving_mean) / moving_scale).view(shape)
        normalized = F.batch_norm(x, None, None, training=True, eps=layer.eps)
        _only_scale_and_shift(layer, own)
        return ((normalized * r + d).to(x.dtype), *inputs[1:])

    return _in_eval_mode(module, before)


def fixed_statistics(module: nn.Module, statistics: Mapping[str, list[Tensor]]) -> Replaced:
    """While active, batch norms normalize by these means and variances, by name."""

    def before(name: str, layer: Any, own: Pair, inputs: tuple[Any, ...]) -> None:
        _put(layer, statistics[name], own)

    return _in_eval_mode(module, before)


def normalized_by(module: nn.Module, normalize: Callable[..., Tensor]) -> Replaced:
    """While active, batch norms scale and shift `normalize(name, input, ε)`, gradient and all."""

    def before(name: str, layer: Any, own: Pair, inputs: tuple[Any, ...]) -> Any:
        _only_scale_and_shift(layer, own)
        return (normalize(name, inputs[0], layer.eps), *inputs[1:])

    return _in_eval_mode(module, before)


def source_statistics(module: nn.Module) -> dict[str, list[Tensor]]:
    """Copies of the running mean and variance of every batch norm, by its name; in float32 at
    least."""
    return {
        name: [wide(layer.running_mean).clone(), wide(layer.running_var).clone()]
        for name, layer in batch_norms(module, running=True).items()
    }


def per_channel(values: Tensor, x: Tensor) -> Tensor:
    """(C,) in a shape that goes with x, (N, C, ...)."""
    return values.view(1, -1, *[1] * (x.dim() - 2))


def _put(layer: Any, statistics: Iterable[Tensor], own: Pair) -> None:
    """Into the buffers of a layer, in the precision of its own."""
    mean, var = (new.to(old) for new, old in zip(statistics, own, strict=True))
    layer.running_mean, layer.running_var = mean, var


def _only_scale_and_shift(layer: Any, own: Pair) -> None:
    """The layer itself only scales and shifts (and activates, in some subclasses)."""
    layer.running_mean = torch.zeros_like(own[0])
    layer.running_var = torch.ones_like(own[1]) - layer.eps


@contextmanager
def _in_eval_mode(module: nn.Module, before: Callable[..., Any]) -> Iterator[None]:
    """Batch norms use what lies in their buffers, where `before` may put it; all is put back."""
    layers = batch_norms(module, running=True)
    own = {name: (layer.running_mean, layer.running_var) for name, layer in layers.items()}
    with ExitStack() as stack:
        for layer in layers.values():
            for name in ("running_mean", "running_var", "training"):
                stack.callback(setattr, layer, name, getattr(layer, name))
            layer.training = False
        with before_forward(layers, lambda name, layer, x: before(name, layer, own[name], x)):
            yield
