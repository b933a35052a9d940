"""Normalization layers: find them, choose their statistics, order them by depth."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

K = TypeVar("K")

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


def batch_norms(module: nn.Module, running: bool = False) -> dict[str, Any]:
    """All batch norms by qualified name, or only those with running statistics."""
    layers: dict[str, Any] = {n: m for n, m in module.named_modules() if is_batch_norm(m)}
    return {n: m for n, m in layers.items() if not running or m.running_mean is not None}


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


@contextmanager
def before_forward(
    layers: Mapping[K, nn.Module], call: Callable[[K, Any, tuple[Any, ...]], Any]
) -> Iterator[None]:
    """While active, `call(key, layer, inputs)` goes before each forward of a layer; inputs that it
    returns take the place of these."""
    with ExitStack() as stack:
        for key, layer in layers.items():
            hook = layer.register_forward_pre_hook(
                lambda layer, inputs, key=key: call(key, layer, inputs)
            )
            stack.callback(hook.remove)
        yield


# ---- statistics ------------------------------------------------------------------------------


def use_batch_statistics(module: nn.Module) -> None:
    """Test BN: normalize by the statistics of the current batch, never touch the running ones.

    `training` makes torch use batch statistics; `track_running_stats = False` keeps it from
    updating the source statistics, which stay where they are for the fallback and for export.
    """
    for layer in batch_norms(module).values():
        layer.training, layer.track_running_stats = True, False


@contextmanager
def batch_statistics(module: nn.Module) -> Iterator[None]:
    """While active, batch norms normalize by the statistics of the batch (test BN)."""
    layers = [layer for layer in batch_norms(module).values() if not layer.training]
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False


@contextmanager
def source_statistics_for_single_values(module: nn.Module) -> Iterator[list[str]]:
    """While active, a batch norm that sees one value per channel uses its source statistics.

    The variance of one value is undefined and torch raises. Yields the names of the layers that
    fell back, filled in as they run.
    """
    fallback: list[str] = []

    def before(name: str, layer: Any, inputs: tuple[Any, ...]) -> None:
        x = inputs[0]
        channels = x.shape[1] if x.dim() > 1 else 1
        if x.numel() == channels and layer.training and layer.running_mean is not None:
            layer.training = False
            fallback.append(name)

    layers = batch_norms(module)
    modes = {name: layer.training for name, layer in layers.items()}
    with before_forward(layers, before):
        try:
            yield fallback
        finally:
            for name, layer in layers.items():
                layer.training = modes[name]


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
