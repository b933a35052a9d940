"""Augmentation: random changes to pixels, on input that was normalized, drawn by the adapter.

A transform takes pixels in [0, 1] and a generator. `augmented` undoes the normalization before it
and does it again after. A function of the user's own takes pixels only; what it draws with torch
comes from the adapter's generator all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import ConfigError, InputError, warn
from . import pixels
from .augmix import augmix
from .pixels import uniform
from .random import drawing_from

Transform = Callable[[Tensor, torch.Generator], Tensor]
Scale = tuple[list[float], list[float]]  # mean and std that the pixels were normalized by


def none(p: Tensor, generator: torch.Generator) -> Tensor:
    return p


def flip(p: Tensor, generator: torch.Generator) -> Tensor:
    """The mirror image, always."""
    return p.flip(-1)


def cotta(p: Tensor, generator: torch.Generator) -> Tensor:
    """The augmentation of CoTTA and RoTTA, one draw for the whole batch.

    Color, then turned, moved and scaled with the edges going on, blurred, mirrored, noise.
    """
    p = _moved(_jittered(p.clamp(0, 1), generator), generator, "border", margin=2)
    p = pixels.blur(p, uniform(1, 0.001, 0.5, generator))
    noise = torch.empty(p.shape, device=generator.device).normal_(generator=generator)
    return (_maybe_mirrored(p, generator) + 0.005 * noise.to(p)).clamp(0, 1)


def roid(p: Tensor, generator: torch.Generator) -> Tensor:
    """That of ROID and CMF: CoTTA's without blur and noise, with reflected edges."""
    p = _moved(_jittered(p.clamp(0, 1), generator), generator, "reflection")
    return _maybe_mirrored(p, generator).clamp(0, 1)


TRANSFORMS: dict[str, Transform] = {
    "none": none,
    "flip": flip,
    "cotta": cotta,
    "roid": roid,
    "augmix": augmix,
}


def _jittered(p: Tensor, generator: torch.Generator) -> Tensor:
    """Brightness, contrast, saturation, hue and gamma, in random order."""
    operations = (
        (pixels.brightness, 0.6, 1.4),
        (pixels.contrast, 0.7, 1.3),
        (pixels.saturation, 0.5, 1.5),
        (pixels.hue, -0.06, 0.06),
        (pixels.gamma, 0.7, 1.3),
    )
    order = torch.randperm(len(operations), generator=generator, device=generator.device)
    for number in order.tolist():
        operation, low, high = operations[number]
        p = operation(p, uniform(1, low, high, generator, like=p))
    return p


def _moved(p: Tensor, generator: torch.Generator, outside: str, margin: int = 0) -> Tensor:
    """Up to 15 degrees, a tenth in scale, and whole pixels up to an eighth of the side.

    The papers pad by half of the image, move by 1/16 of that and cut the center out again; the
    padding is never left, so looking beyond the edge is the same.
    """
    turn, size = uniform(1, -15, 15, generator), uniform(1, 0.9, 1.1, generator)
    matrix = pixels.rotation(turn, size)
    share = torch.cat([uniform(1, -1, 1, generator) for _ in range(2)]).flatten()
    sides = share.new_tensor([p.shape[-1], p.shape[-2]])
    shift = (share * sides / 8).round()
    return pixels.sample(p, matrix, -(matrix @ shift), outside, margin)


def _maybe_mirrored(p: Tensor, generator: torch.Generator) -> Tensor:
    return p.flip(-1) if float(uniform(1, 0, 1, generator)) < 0.5 else p


# ---- on the input of a model ---------------------------------------------------------------------


def find_transform(given: Any) -> Transform:
    """The transform behind a name, or a function of pixels as one."""
    if isinstance(given, str) and given in TRANSFORMS:
        return TRANSFORMS[given]
    if not callable(given):
        raise ConfigError(
            f"augment={given!r} is unknown; choose from {', '.join(TRANSFORMS)}, or give a"
            " function of (N, C, H, W) pixels in [0, 1]"
        )

    def own(p: Tensor, generator: torch.Generator) -> Tensor:
        with drawing_from(generator):
            result = given(p)
        if not isinstance(result, Tensor) or result.shape != p.shape:
            seen = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
            raise InputError(
                f"augment gave {seen} for pixels of shape {tuple(p.shape)}; it must return as many"
                " images of the same size"
            )
        return result

    return own


def find_scale(mean: Any, std: Any, known: Any, x: Tensor) -> Scale:
    """Mean and std of the input: as given, as known of the model, or from a look at a batch.

    Pixels need none. A normalized input of unknown origin is taken for mean 0.5 and std 0.25,
    which puts that of all usual ones inside [0, 1].
    """
    known_mean, known_std = known or (None, None)
    mean, std = (known_mean if mean is None else mean), (known_std if std is None else std)
    if mean is None or std is None:
        mean, std = (0.0 if mean is None else mean), (1.0 if std is None else std)
        if known is None and (float(x.min()) < 0 or float(x.max()) > 1):
            mean, std = 0.5, 0.25
            warn(
                "augmentation works on pixels, but mean= and std= are not given and the model does"
                " not know its preprocessing: 0.5 and 0.25 are taken; give mean=(...), std=(...)"
            )
    values = [_per_channel(name, v, x) for name, v in (("mean", mean), ("std", std))]
    if min(values[1]) <= 0:
        raise ConfigError(f"std={std!r} cannot work; give values above 0")
    return values[0], values[1]


def _per_channel(name: str, value: float | Sequence[float], x: Tensor) -> list[float]:
    values = [float(v) for v in (value if isinstance(value, Sequence) else [value])]
    if len(values) not in (1, x.shape[1]):
        raise ConfigError(
            f"{name}={value!r} has {len(values)} values, the input {x.shape[1]} channels"
        )
    return values


@torch.no_grad()
def augmented(x: Tensor, transform: Transform, scale: Scale, generator: torch.Generator) -> Tensor:
    """The transform of a batch of model input, in the same precision and layout of memory."""
    if x.dim() != 4:
        raise InputError(
            f"the batch has shape {tuple(x.shape)}; augmentation takes images, (N, C, H, W)"
        )
    exact = x.float() if x.dtype.itemsize < 4 else x
    mean, std = (exact.new_tensor(values).view(-1, 1, 1) for values in scale)
    p = transform((exact * std + mean).contiguous(), generator)
    return torch.empty_like(x).copy_((p - mean) / std)
