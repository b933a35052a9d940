"""Normalization layers: find them, choose their statistics, order them by depth."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

_NORM_TYPES = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
# Libraries bring norms that subclass nothing (timm's RmsNorm, Hugging Face's ...RMSNorm):
_NORM_NAME = re.compile(r"(rms|layer|batch|group|instance)_?norm", re.IGNORECASE)


def is_norm(module: nn.Module) -> bool:
    """A normalization layer: a torch one, a subclass, or one that looks exactly like it."""
    if isinstance(module, _NORM_TYPES):
        return True
    weight = module._parameters.get("weight")
    return (
        weight is not None and weight.dim() == 1 and bool(_NORM_NAME.search(type(module).__name__))
    )


def is_batch_norm(module: nn.Module) -> bool:
    """Layers whose statistics run over the batch (SyncBatchNorm and subclasses included)."""
    return isinstance(module, _BatchNorm)


def has_statistics(module: nn.Module) -> bool:
    """Whether there is a batch norm with running statistics, scale and shift."""
    return any(
        is_batch_norm(layer) and layer.running_mean is not None and layer.affine
        for layer in module.modules()
    )


def norm_layers(module: nn.Module) -> dict[str, nn.Module]:
    """All normalization layers by qualified name, in the order they are registered."""
    return {name: layer for name, layer in module.named_modules() if is_norm(layer)}


def affine_names(layers: dict[str, nn.Module]) -> list[str]:
    """Qualified names of scale and shift of these layers, as far as they have them."""
    return [
        f"{name}.{key}" if name else key
        for name, layer in layers.items()
        for key in ("weight", "bias")
        if isinstance(layer._parameters.get(key), nn.Parameter)
    ]


# ---- statistics ------------------------------------------------------------------------------


def use_batch_statistics(module: nn.Module) -> None:
    """Test BN: normalize by the statistics of the current batch, never touch the running ones.

    `training` makes torch use batch statistics; `track_running_stats = False` keeps it from
    updating the source statistics, which stay where they are for the fallback and for export.
    """
    for layer in module.modules():
        if is_batch_norm(layer):
            layer.training = True
            layer.track_running_stats = False  # type: ignore[assignment]


@contextmanager
def batch_statistics(module: nn.Module) -> Iterator[None]:
    """While active, batch norms normalize by the statistics of the batch (test BN)."""
    layers = [layer for layer in module.modules() if is_batch_norm(layer) and not layer.training]
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False


def _values_per_channel(x: Tensor) -> int:
    return x.numel() // x.shape[1] if x.dim() > 1 else x.numel()


@contextmanager
def source_statistics_for_single_values(module: nn.Module) -> Iterator[list[str]]:
    """While active, a batch norm that sees one value per channel uses its source statistics.

    The variance of one value is undefined and torch raises. Yields the names of the layers that
    fell back, filled in as they run.
    """
    fallback: list[str] = []

    def before(name: str, layer: nn.Module, x: Tensor) -> None:
        single = _values_per_channel(x) == 1
        if single and layer.training and layer.running_mean is not None:
            layer.training = False
            fallback.append(name)

    layers = {n: m for n, m in module.named_modules() if is_batch_norm(m)}
    modes = {name: layer.training for name, layer in layers.items()}
    with ExitStack() as stack:
        for name, layer in layers.items():
            hook = layer.register_forward_pre_hook(
                lambda layer, inputs, name=name: before(name, layer, inputs[0])
            )
            stack.callback(hook.remove)
        try:
            yield fallback
        finally:
            for name, layer in layers.items():
                layer.training = modes[name]


@contextmanager
def mixed_statistics(module: nn.Module, alpha: float) -> Iterator[None]:
    """While active, batch norms use (1 - alpha) · source + alpha · batch statistics."""

    sources: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def mix(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0].detach()  # torch has no gradient by running statistics
        axes = [axis for axis in range(x.dim()) if axis != 1]
        var, mean = torch.var_mean(x, dim=axes, correction=0)
        source_mean, source_var = sources[layer]
        layer.running_mean = source_mean + alpha * (mean - source_mean)
        layer.running_var = source_var + alpha * (var - source_var)

    layers = [m for m in module.modules() if is_batch_norm(m) and m.running_mean is not None]
    with ExitStack() as stack:
        for layer in layers:
            sources[layer] = (layer.running_mean, layer.running_var)  # type: ignore[assignment]
            stack.callback(setattr, layer, "training", layer.training)
            layer.training = False  # normalize by the statistics that `mix` puts in place
            stack.callback(layer.register_forward_pre_hook(mix).remove)
        try:
            yield
        finally:
            for layer, (mean, var) in sources.items():
                layer.running_mean, layer.running_var = mean, var


# ---- depth -----------------------------------------------------------------------------------


def _units(module: nn.Module, prefix: str = "") -> list[tuple[str, nn.Module, int]]:
    """The children that hold norm layers; one with most of them is replaced by its children."""
    children = [
        (prefix + name, child, sum(map(is_norm, child.modules())))
        for name, child in module.named_children()
    ]
    children = [unit for unit in children if unit[2]]
    total = sum(count for _, _, count in children)
    units: list[tuple[str, nn.Module, int]] = []
    for name, child, count in children:
        if not is_norm(child) and (2 * count > total or len(children) == 1):
            units += _units(child, name + ".")
        else:
            units.append((name, child, count))
    return units


def without_last_block(module: nn.Module, share: float = 0.25) -> dict[str, nn.Module]:
    """The norm layers without those of the last `share` of the blocks, judged by depth.

    Blocks are the children along the trunk of the model: the four stages of a ResNet, the
    encoder blocks of a transformer. A quarter is `layer4` of the former and the last three
    blocks of a twelve-block ViT, with the final norm that follows them. At least one block is
    left out and at least one norm layer stays.
    """
    units = _units(module)
    blocks = [index for index, (_, child, _) in enumerate(units) if not is_norm(child)]
    if len(blocks) < 2:  # a flat chain of layers: every norm layer is its own block
        blocks = list(range(len(units)))
    skipped = max(1, int(len(blocks) * share))
    if skipped >= len(blocks):
        return norm_layers(module)
    first = blocks[len(blocks) - skipped]
    dropped = [name for name, _, _ in units[first:]]
    return {
        name: layer
        for name, layer in norm_layers(module).items()
        if not any(name == unit or name.startswith(unit + ".") for unit in dropped)
    }


# ---- a crash to keep away ----------------------------------------------------------------------


def contiguous_when_frozen(layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Forward pre-hook for thawed GroupNorm: hand it contiguous input if that needs no gradient.

    PyTorch 2.13 on CPU crashes the process in GroupNorm's backward when the input is
    channels-last and needs no gradient, as after a frozen convolution.
    """
    x = inputs[0]
    if x.device.type == "cpu" and not x.requires_grad and not x.is_contiguous():
        return (x.contiguous(), *inputs[1:])
    return None
