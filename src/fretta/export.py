"""The adapted model as a plain PyTorch module, and further: `torch.export` and ONNX.

module = adapter.export(statistics=batches)
fretta.export.to_program(module, x)            # a torch.export.ExportedProgram
fretta.export.to_onnx(module, x, "model.onnx")
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ._util import atomic
from .errors import ConfigError, InputError, MissingExtraError, ModelError, warn
from .learner import Learner
from .parts.classifier import Classifier
from .parts.features import take_logits
from .parts.norm import batch_norms, before_forward, contiguous_when_frozen
from .parts.tensors import private_copy, put_back
from .prepare import source_batches

MIXED = 0.25  # weight of the other model from which on many labels may differ


def to_program(module: nn.Module, example: Tensor) -> Any:
    """The module as a `torch.export.ExportedProgram` for any batch size.

    example   a batch of at least two images like those it will see
    """
    with _traced("torch.export", module, example):
        return torch.export.export(module, (example,), dynamic_shapes=_any_batch())


def to_onnx(module: nn.Module, example: Tensor, path: str | os.PathLike[str]) -> Path:
    """Write the module as one ONNX file, input `images`, output `logits`, for any batch size."""
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "onnx", "an ONNX file")
    target = Path(path)
    with _traced("the ONNX exporter", module, example), atomic(target) as draft:
        torch.onnx.export(
            module,
            (example,),
            str(draft),
            input_names=["images"],
            output_names=["logits"],
            dynamo=True,
            dynamic_shapes=_any_batch(),
            external_data=False,
            verbose=False,
        )
    return target


def _any_batch() -> Any:
    return ({0: torch.export.Dim("batch", min=1)},)  # torch.export is slow to import


@contextmanager
def _traced(tool: str, module: nn.Module, example: Tensor) -> Iterator[None]:
    """Check what is given, and explain an error of the tracer."""
    if not isinstance(example, Tensor) or example.dim() < 2 or len(example) < 2:
        seen = tuple(example.shape) if isinstance(example, Tensor) else type(example).__name__
        raise InputError(
            f"example is {seen}; give a batch of at least two images, (N, C, H, W): from a single"
            " one the tracer would conclude that there is always one"
        )
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"module is a {type(module).__name__}; give what adapter.export() returned"
        )
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # a tracer raises whatever it meets
        first = (str(error).strip() or "no message").splitlines()[0][:300]
        raise ModelError(
            f"{tool} cannot take {type(module).__name__}: {type(error).__name__}: {first}. The"
            " module itself works in PyTorch; models whose forward depends on the values of the"
            " images, or calls Python code the tracer does not know, stay there"
        ) from error


# ---- the plain module -----------------------------------------------------------------------


def export_plain(
    learner: Learner, source: bool, statistics: str | Iterable[Any] | None
) -> nn.Module:
    """What `Adapter.export` returns, or a ConfigError that says why a plain module cannot do it.

    source   the guard lets the source model predict
    """
    method, model = learner.method, learner.model
    images = None if statistics == "batch" else statistics
    if isinstance(images, str):
        raise ConfigError(
            f"export: statistics={images!r} is unknown; give 'batch', an iterable of image"
            " batches, or None"
        )
    if images is not None:
        images = _some(source_batches(images, model))
    if source:
        mixed = 0.0
    elif images is None:
        mixed = method.source_share
    else:
        mixed = method.source_share_on(model, images)
    if mixed > 0.5 >= method.source_share:
        warn(
            f"on these images {method.key} trusts the source model more than what it learned last:"
            " what is exported is the source model"
        )
    source = source or mixed > 0.5
    share = 1.0 if source else method.batch_share
    if not source and method.output not in (None, "none"):
        raise ConfigError(
            f"output={method.output!r} looks at all predictions of a batch, which a plain"
            " module cannot do; adapt with output='none' to export"
        )
    if share is None:
        raise ConfigError(
            f"{method.key} predicts by more than a forward of the model, which a plain"
            " module cannot do"
        )
    mixes = share < 1
    if not source and model.share is not None:  # statistics= a number, whatever the method has
        share, mixes = model.share, model.share > 0
    if mixes and images is None and model.batch_norms:
        raise ConfigError(
            f"{method.key} mixes the statistics of every batch with the source's, which a"
            " plain module cannot do; give statistics=, an iterable of image batches"
        )
    if min(mixed, 1 - mixed) >= MIXED:
        alone = "source" if source else "adapted"
        warn(
            f"{method.key} mixes its predictions with the source model's, which counts"
            f" {100 * mixed:.0f} %; a plain module cannot do that: this is the {alone} model alone,"
            " and some labels may differ. Adapt on more images before you export, or deploy the"
            " adapter itself"
        )
    return plain_copy(
        model,
        source=source,
        alpha=share,
        images=images,
        forward=lambda x: method.forward(model, x),
    )


def _some(images: Iterable[Tensor]) -> Iterator[Tensor]:
    seen = False
    for x in images:
        seen = True
        yield x
    if not seen:
        raise InputError(
            "export: statistics= gave no images; give an iterable of (N, C, H, W) batches"
        )


def plain_copy(
    model: Classifier,
    *,
    source: bool,
    alpha: float,
    images: Iterable[Tensor] | None,
    forward: Callable[[Tensor], Any],
) -> nn.Module:
    """A deep copy in eval mode, without gradients, that returns logits as the adapter does.

    Nothing of ours is in it but a forward hook, where the model returns more than the logits.

    source    the model in its initial state
    images    give batch norms that use batch statistics running ones, measured on these images
              by `forward`; their mean and variance, mixed (1 - alpha) : alpha with the source's
    """
    tested = [
        name
        for name, layer in batch_norms(model.net).items()
        if layer.training or (model.share and layer.running_mean is not None)
    ]
    measured = None
    if images is not None and tested and not source:
        measured = _statistics(model, tested, images, forward)
    with model.statistics.as_source() if source and model.statistics else nullcontext():
        net = _copy(model.net)
    if source:
        parameters = dict(net.named_parameters(remove_duplicate=False))
        put_back({name: parameters[name] for name in model.adapted}, model.origin)
        buffers = dict(net.named_buffers())
        put_back({n: buffers[n] for n in model.origin_buffers}, model.origin_buffers)
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
    if images is not None:  # to be saved: in the layout in which the model stored them
        net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    if model.place is not None:
        net.register_forward_hook(partial(_logits_alone, model.place))
    return net.eval().requires_grad_(False)


def _logits_alone(place: Any, _: nn.Module, __: Any, output: Any) -> Any:
    return take_logits(output, place)


def _copy(net: nn.Module) -> nn.Module:
    twin = private_copy(net)
    for module in twin.modules():
        for number, hook in list(module._forward_pre_hooks.items()):
            if hook is contiguous_when_frozen:
                del module._forward_pre_hooks[number]
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

    layers = {name: model.net.get_submodule(name) for name in names}
    with before_forward(layers, lambda name, _, inputs: record(name, inputs[0])):
        for x in images:
            forward(x)
    missing = [name for name in names if name not in sums]
    if missing:
        raise InputError(
            f"export: {missing[0]!r} was not used by these images; leave statistics= out"
        )
    return {name: (mean, var) for name, (_, mean, var) in sums.items()}
