"""The model of the first day for one forward, and a plain copy of the adapted model to keep."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..errors import InputError, ModelError
from .classifier import Classifier
from .features import take_logits
from .norm import contiguous_when_frozen, is_batch_norm
from .random import undisturbed
from .snapshot import copy_tensors, put_back


@contextmanager
def as_source(model: Classifier) -> Iterator[None]:
    """While active, the model is that of the first day: parameters, statistics, other buffers.

    Parameters change places with their first values by reference, so nothing is copied and they
    come back bit for bit; buffers and random numbers that a forward moves are put back.
    """
    norms = [m for m in batch_norms(model.net) if m.training]
    now = {name: parameter.data for name, parameter in model.adapted.items()}
    has_buffers = bool(model._first_buffers)
    buffers = copy_tensors(model._buffers()) if has_buffers else {}
    like = next(iter(now.values()), None)
    like = model.example() if like is None else like
    device = torch.device("cpu") if like is None else like.device
    with undisturbed(device):
        try:
            for name, parameter in model.adapted.items():
                parameter.data = model.origin[name]
            if has_buffers:
                put_back(model._buffers(), model._first_buffers)
            for layer in norms:
                layer.training = False  # running statistics, which never move here
            yield
        finally:
            for layer in norms:
                layer.training = True
            for name, parameter in model.adapted.items():
                parameter.data = now[name]
            if has_buffers:
                put_back(model._buffers(), buffers)


_FOUND: WeakKeyDictionary[nn.Module, list[nn.Module]] = WeakKeyDictionary()


def batch_norms(net: nn.Module) -> list[nn.Module]:
    """Found once: walking a large network at every batch would cost more than it seems."""
    if net not in _FOUND:
        _FOUND[net] = [m for m in net.modules() if is_batch_norm(m)]
    return _FOUND[net]


def plain_copy(
    model: Classifier,
    *,
    source: bool,
    alpha: float = 1.0,
    images: Iterable[Tensor] | None = None,
    forward: Callable[[Tensor], Any] | None = None,
) -> nn.Module:
    """A deep copy in eval mode, without gradients, that returns logits as the adapter does.

    Nothing of ours is in it but a forward hook, where the model returns more than the logits.

    source    the model of the first day
    images    give batch norms that use batch statistics running ones, measured on these images
              by `forward`; their mean and variance, mixed (1 - alpha) : alpha with the source's
    """
    tested = [n for n, m in model.net.named_modules() if is_batch_norm(m) and m.training]
    measured = None
    if images is not None and tested and not source:
        measured = _statistics(model, tested, images, forward or model)
    net = _copy(model.net)
    if source:
        put_back(dict(_named(net, model.adapted)), model.origin)
        buffers = dict(net.named_buffers())
        put_back({n: buffers[n] for n in model._first_buffers}, model._first_buffers)
    for name in tested:
        layer: Any = net.get_submodule(name)
        if source or layer.running_mean is None:
            layer.track_running_stats = layer.running_mean is not None
        elif measured is not None:
            mean, var = measured[name]
            layer.track_running_stats = True
            layer.running_mean.lerp_(mean.to(layer.running_mean), alpha)
            layer.running_var.lerp_(var.to(layer.running_var), alpha)
        else:
            # torch's rule: without running statistics a batch norm uses those of the batch,
            # also in eval mode
            layer.track_running_stats = False
            layer.running_mean = layer.running_var = layer.num_batches_tracked = None
    if images is not None:  # weights to take home: as the model stored them
        net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    if model.place is not None:
        net.register_forward_hook(partial(_logits_alone, model.place))
    return net.eval().requires_grad_(False)


def _logits_alone(place: Any, _: nn.Module, __: Any, output: Any) -> Any:
    return take_logits(output, place)


def _named(net: nn.Module, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
    parameters = dict(net.named_parameters(remove_duplicate=False))
    return ((name, parameters[name]) for name in names)


def _copy(net: nn.Module) -> nn.Module:
    try:
        twin = copy.deepcopy(net)
    except (RuntimeError, TypeError) as error:
        raise ModelError(
            f"the model cannot be copied ({type(error).__name__}: {error}); adapt it with"
            " inplace=True and use that model itself"
        ) from error
    for module in twin.modules():
        for number, hook in list(module._forward_pre_hooks.items()):
            owner = getattr(hook, "__self__", None)
            ours = hook is contiguous_when_frozen or getattr(owner, "fretta", False)
            if ours:
                del module._forward_pre_hooks[number]
                module._forward_pre_hooks_with_kwargs.pop(number, None)
        for name in ("fretta_card", "fretta_preprocessing"):
            module.__dict__.pop(name, None)
    return twin


@torch.no_grad()
def _statistics(
    model: Classifier, names: list[str], images: Iterable[Tensor], forward: Callable[[Tensor], Any]
) -> dict[str, tuple[Tensor, Tensor]]:
    """Mean and variance of what enters each layer, over all images, as if in one batch."""
    sums: dict[str, list[Tensor]] = {}  # [values per channel, mean, mean of squares], as moved

    def record(name: str, x: Tensor) -> None:
        axes = [axis for axis in range(x.dim()) if axis != 1]
        # float32 in two passes is exact to 1e-6; in double it took twice as long as the forward
        x = x.detach() if x.dtype == torch.float64 else x.detach().float()
        center = x.mean(axes, keepdim=True)
        var, mean = (x - center).square_().mean(axes).double(), center.flatten().double()
        n = torch.tensor(float(x.numel() // x.shape[1]), dtype=torch.float64, device=x.device)
        if name not in sums:
            sums[name] = [n, mean, var]
            return
        total, old_mean, old_var = sums[name]
        share = n / (total + n)
        apart = mean - old_mean
        # the variance of a union: the mean of the variances and the spread of the means
        joint = old_var + share * (var - old_var) + share * (1 - share) * apart.square()
        sums[name] = [total + n, old_mean + share * apart, joint]

    seen = 0
    with ExitStack() as stack:
        for name in names:
            hook = model.net.get_submodule(name).register_forward_pre_hook(
                lambda _, inputs, name=name: record(name, inputs[0])
            )
            stack.callback(hook.remove)
        for x in images:
            forward(x)
            seen += len(x)
    missing = [name for name in names if name not in sums]
    if not seen or missing:
        raise InputError(
            "export: statistics= gave no images; give an iterable of (N, C, H, W) batches"
            if not seen
            else f"export: {missing[0]!r} was not used by these images; leave statistics= out"
        )
    return {name: (mean, var) for name, (_, mean, var) in sums.items()}
