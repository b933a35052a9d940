"""Batch norms that normalize by other statistics than their own, for the length of a forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .norm import is_batch_norm

Statistics = tuple[Tensor, Tensor]  # mean and variance of each channel
Choice = Callable[[str, Tensor, Statistics], Statistics]


def measured(x: Tensor, correction: int = 1) -> Statistics:
    """Mean and variance of each channel; correction 1 is the unbiased variance."""
    axes = [axis for axis in range(x.dim()) if axis != 1]
    var, mean = torch.var_mean(x, dim=axes, correction=correction)
    return mean, var


def single_valued(x: Tensor) -> bool:
    """One value per channel, which has no variance."""
    return x.numel() == x.shape[1]


@contextmanager
def replaced_statistics(module: nn.Module, choose: Choice) -> Iterator[None]:
    """While active, batch norms use `choose(name, input, source statistics)`, as constants.

    Not asked where there is one value per channel: there the source statistics stay.
    """

    def before(name: str, layer: Any, own: Statistics, inputs: tuple[Any, ...]) -> None:
        x = inputs[0].detach()
        layer.running_mean, layer.running_var = own if single_valued(x) else choose(name, x, own)

    with _in_eval_mode(module, before):
        yield


@contextmanager
def renormalized(module: nn.Module, choose: Choice) -> Iterator[None]:
    """While active, batch norms compute (x - μ̂) / ŝ, with the gradient of batch norm.

    y = x̂ r + d, x̂ the input normalized by the batch, r = s_b / ŝ and d = (μ_b - μ̂) / ŝ constants
    (batch renormalization, Ioffe 2017). `choose(name, input, (μ_b, s_b))` gives (μ̂, ŝ): here the
    second is a standard deviation, ε included. Scale and shift follow as always.
    """

    def before(name: str, layer: Any, own: Statistics, inputs: tuple[Any, ...]) -> Any:
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
        return (normalized * r + d, *inputs[1:])

    with _in_eval_mode(module, before):
        yield


@contextmanager
def fixed_statistics(module: nn.Module, statistics: Mapping[str, list[Tensor]]) -> Iterator[None]:
    """While active, batch norms normalize by these means and variances, by name."""

    def before(name: str, layer: Any, own: Statistics, inputs: tuple[Any, ...]) -> None:
        layer.running_mean, layer.running_var = statistics[name]

    with _in_eval_mode(module, before):
        yield


@contextmanager
def normalized_by(module: nn.Module, normalize: Callable[..., Tensor]) -> Iterator[None]:
    """While active, batch norms scale and shift `normalize(name, input, ε)`, gradient and all."""

    def before(name: str, layer: Any, own: Statistics, inputs: tuple[Any, ...]) -> Any:
        _only_scale_and_shift(layer, own)
        return (normalize(name, inputs[0], layer.eps), *inputs[1:])

    with _in_eval_mode(module, before):
        yield


def source_statistics(module: nn.Module) -> dict[str, list[Tensor]]:
    """Copies of the running mean and variance of every batch norm, by its name."""
    return {
        name: [layer.running_mean.clone(), layer.running_var.clone()]
        for name, layer in module.named_modules()
        if is_batch_norm(layer) and layer.running_mean is not None
    }


def per_channel(values: Tensor, x: Tensor) -> Tensor:
    """(C,) in a shape that goes with x, (N, C, ...)."""
    return values.view(1, -1, *[1] * (x.dim() - 2))


def _only_scale_and_shift(layer: Any, own: Statistics) -> None:
    """The layer itself only scales and shifts (and activates, in some subclasses)."""
    layer.running_mean = torch.zeros_like(own[0])
    layer.running_var = torch.ones_like(own[1]) - layer.eps


@contextmanager
def _in_eval_mode(module: nn.Module, before: Callable[..., Any]) -> Iterator[None]:
    """Batch norms use what lies in their buffers, where `before` may put it; all is put back."""
    with ExitStack() as stack:
        for name, layer in module.named_modules():
            if not is_batch_norm(layer) or layer.running_mean is None:
                continue
            own = (layer.running_mean, layer.running_var)
            stack.callback(setattr, layer, "running_mean", own[0])
            stack.callback(setattr, layer, "running_var", own[1])
            stack.callback(setattr, layer, "training", layer.training)
            layer.training = False
            hook = layer.register_forward_pre_hook(
                lambda layer, inputs, name=name, own=own: before(name, layer, own, inputs)
            )
            stack.callback(hook.remove)
        yield
