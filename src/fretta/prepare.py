"""What a batch and a model must be before anything begins. Nothing has changed when these raise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .errors import InputError, ModelError, NeedError, SmallBatchWarning, warn
from .method import Method, Need
from .parts.classifier import Classifier
from .parts.compute import laid_out
from .parts.norm import affine_names, batch_norms, norm_layers

# Test BN loses 2 to 5 points of accuracy at 16 images a batch, 4 to 10 at 8, 8 to 16 at 4; with a
# quarter of the batch it loses 2 to 4 at 4 images (benchmarks/small_batches.py, docs/guard.md).
SMALL_BATCH = 16
NOISY_SHARE = 0.5
# Preprocessed images lie within tens of 0, raw ones of 16 bits within 65535. Squares and sums of
# more overflow in float32, and moving statistics would keep an outlier for good.
LARGEST = 1e6


def checked_batch(x: Any, model: Classifier) -> Tensor:
    """The batch, if the model can take it; an InputError that says why not otherwise."""
    if not isinstance(x, Tensor):
        raise InputError(
            f"the batch is a {type(x).__name__}; give a floating-point (N, C, H, W) tensor"
        )
    if x.layout is not torch.strided or x.is_quantized:
        raise InputError(f"the batch is {x.layout}, {x.dtype}; give a dense floating-point tensor")
    if not x.is_floating_point():
        raise InputError(
            f"the batch has dtype {x.dtype}; models take floating-point images, preprocessed as in"
            " training: x.float() / 255, then (x - mean) / std"
        )
    if x.dim() < 2 or x.numel() == 0:
        raise InputError(
            f"the batch has shape {tuple(x.shape)}; give at least one image: (N, C, H, W)"
        )
    like = model.example()
    if like is not None and x.device != like.device:
        raise InputError(
            f"the batch is on {x.device}, the model on {like.device}; use x.to('{like.device}')"
        )
    if like is not None and x.dtype != like.dtype and not torch.is_autocast_enabled(x.device.type):
        raise InputError(f"the batch is {x.dtype}, the model {like.dtype}; use x.to({like.dtype})")
    low, high = torch.aminmax(x.detach())  # one pass finds out; only then look where
    if not bool((low >= -LARGEST) & (high <= LARGEST)):
        bad = ~(x.detach().abs() <= LARGEST).flatten(1).all(1)
        raise InputError(
            f"NaN, infinite or absurdly large pixels (over {LARGEST:.0e}) in {int(bad.sum())} of"
            f" {len(x)} images, at batch position {bad.nonzero().flatten().tolist()[:10]}; drop"
            " them, or preprocess as in training. The adapter has not changed"
        )
    # autograd cannot keep tensors made under inference_mode, nor may it enter the caller's graph
    return laid_out(x.clone() if x.is_inference() else x.detach(), model.layout)


def predicts(logits: Tensor) -> Tensor:
    """(N,) whether a row is a prediction; -inf, of a class that cannot be, may be part of one."""
    return torch.isfinite(logits.logsumexp(1))


def predicted_classes(logits: Tensor) -> Tensor:
    """(N,) the most likely class; -1 where a row is no prediction: what diverged is never right."""
    return logits.argmax(1).where(predicts(logits), -1)


def check_overflow(source: Tensor, x: Tensor) -> None:
    """What even the source model overflows on is no image: the batch is at fault."""
    bad = (~predicts(source)).nonzero().flatten().tolist()
    if bad:
        raise InputError(
            f"the source model's logits are NaN or infinite for {len(bad)} of {len(x)} images, at"
            f" batch position {bad[:10]}: it overflows. The pixels reach"
            f" {float(x.abs().max()):.3g}; drop these images, or preprocess as in training. The"
            " adapter has not changed"
        )


def source_batches(source: Iterable[Any], model: Classifier) -> Iterator[Tensor]:
    """Image batches from image batches or (images, labels); labels are ignored."""
    if isinstance(source, Tensor) or not isinstance(source, Iterable):
        seen = tuple(source.shape) if isinstance(source, Tensor) else type(source).__name__
        raise InputError(f"{seen} is no iterable of batches; give a list of them or a DataLoader")
    for item in source:
        x = item[0] if isinstance(item, tuple | list) and len(item) else item
        yield checked_batch(x, model)


def caution_probabilities(logits: Tensor) -> None:
    """Entropy of a softmax of a softmax is flat: adapting such a model does next to nothing."""
    sums = logits.sum(1)
    if bool((logits >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
        warn(
            "the model's outputs are probabilities, not logits; remove its final softmax, or losses"
            " will take a softmax of it again"
        )


class SmallBatchCheck:
    """Warns once of batches too small for batch statistics; not of a last one, which is alone in
    being small."""

    def __init__(self) -> None:
        self.previous_small: bool | None = None  # None: there was no batch before
        self.warned = False

    def __call__(self, x: Tensor, method: Method, model: Classifier) -> None:
        if self.warned:
            return
        noisy = method.batch_share is None or method.batch_share > NOISY_SHARE
        small = len(x) < SMALL_BATCH and noisy and model.uses_batch_statistics()
        if small and self.previous_small is not False:
            self.warned = True
            warn(
                f"batches of fewer than {SMALL_BATCH} images: {method.key} normalizes by the"
                " statistics of each batch, and those of so few images are mostly noise. Give"
                " larger batches (collect images first), or use 'auto' or 'stein', which remember"
                " earlier batches, or 'source'",
                SmallBatchWarning,
            )
        self.previous_small = small


def unwrapped(model: Any) -> nn.Module:
    """The network in what torch.compile and DataParallel wrap: they hide what hooks must see."""
    if not isinstance(model, nn.Module):
        raise ModelError(f"model is a {type(model).__name__}; give a torch.nn.Module")
    if isinstance(model, torch.jit.ScriptModule):
        raise ModelError("a scripted module cannot be adapted: give the module it was made from")
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in model.parameters()):
        raise ModelError(
            "the model has lazy layers that never saw an input, so there is nothing to adapt; call"
            " it with a batch first, or load its weights"
        )
    net: nn.Module = getattr(model, "_orig_mod", model)
    return net.module if isinstance(net, nn.DataParallel) else net


def check_needs(net: nn.Module, method: Method, source: Iterable[Any] | None) -> None:
    if Need.NORM in method.needs and not affine_names(norm_layers(net)):
        raise NeedError(
            f"{method.key} adapts scale and shift of normalization layers, but {type(net).__name__}"
            " has none; use 'source', or 'tsd', which adapts all parameters"
        )
    tracked = batch_norms(net, running=True).values()
    if Need.BATCH_NORM in method.needs and not any(layer.affine for layer in tracked):
        kinds = sorted({type(layer).__name__ for layer in norm_layers(net).values()})
        raise NeedError(
            f"{method.key} replaces the running statistics of batch-norm layers, but"
            f" {type(net).__name__} has none of them (its norm layers:"
            f" {', '.join(kinds) or 'none'}); use 'cotta', 'eta' or 'sar', which work with any"
        )
    if Need.SOURCE in method.needs and source is None:
        hint = f"; without any, {method.without_source}" if method.without_source else ""
        raise NeedError(
            f"{method.key} needs unlabeled source images: give batches of them with source={hint}"
        )
