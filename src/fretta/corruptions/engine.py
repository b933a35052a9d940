"""corrupt(): one corruption on a whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, InputError
from . import blur, color, digital, elastic, fog, frost, glass, motion, noise, snow, spatter
from .base import Corruption, Draws, ImageRandom, Pixels
from .constants import Constants, check_name, constants_for

__all__ = ["corrupt", "draws_for"]

_BY_NAME: dict[str, Corruption] = {
    corruption.name: corruption
    for corruption in (
        noise.GAUSSIAN_NOISE,
        noise.SHOT_NOISE,
        noise.IMPULSE_NOISE,
        blur.DEFOCUS_BLUR,
        glass.GLASS_BLUR,
        motion.MOTION_BLUR,
        blur.ZOOM_BLUR,
        snow.SNOW,
        frost.FROST,
        fog.FOG,
        color.BRIGHTNESS,
        color.CONTRAST,
        elastic.ELASTIC_TRANSFORM,
        digital.PIXELATE,
        digital.JPEG_COMPRESSION,
        noise.SPECKLE_NOISE,
        blur.GAUSSIAN_BLUR,
        spatter.SPATTER,
        color.SATURATE,
    )
}

CHUNK = 2**17  # pixel values worked on at a time: as float64 they stay in a core's cache


def _as_pixels(images: Any) -> Pixels:
    array = np.asarray(images)  # torch tensors on the CPU share their memory
    if array.dtype != np.uint8:
        raise InputError(
            f"the images are {array.dtype}; corruptions are defined on uint8 pixels 0..255. "
            "Corrupt before normalizing, or convert: (x * 255).round().astype('uint8')"
        )
    if array.ndim != 4 or array.shape[-1] != 3:
        raise InputError(
            f"the images have shape {array.shape}; expected (N, H, W, 3), channels last. "
            "One image: images[None]; channels first: images.transpose(0, 2, 3, 1)"
        )
    if 0 in array.shape[1:3]:
        raise InputError(f"the images have shape {array.shape}: there are no pixels to corrupt")
    return array


def _as_indices(
    indices: Sequence[int] | NDArray[np.integer] | None, count: int
) -> NDArray[np.int64]:
    if indices is None:
        return np.arange(count)
    array = np.asarray(indices)
    if array.shape != (count,) or (count and array.dtype.kind not in "iu"):
        raise ConfigError(
            f"indices has shape {array.shape} and type {array.dtype}; "
            f"expected one whole number for each of the {count} images"
        )
    if count and array.min() < 0:
        raise ConfigError(f"indices contains {array.min()}; an image's index starts at 0")
    return array.astype(np.int64)


def draws_for(
    name: str, c: Constants, height: int, width: int, random: ImageRandom, indices: Sequence[int]
) -> Draws:
    """The random numbers of these images, stacked."""
    draw = _BY_NAME[name].draw
    if draw is None:
        return {}
    return random.stack(draw(random.of(index), height, width, c) for index in indices)


def corrupt(
    images: Any,
    name: str,
    severity: float = 5,
    *,
    seed: int = 0,
    indices: Sequence[int] | NDArray[np.integer] | None = None,
    constants: str | None = None,
) -> Pixels:
    """Corrupt a batch of uint8 images (N, H, W, 3) of any size; returns a new array.

    severity   1 to 5, fractions allowed
    seed       the result depends on (seed, name, severity, index of the image) and on nothing else
    indices    the index of each image in its data set; 0, 1, 2, ... if not given
    constants  "cifar" or "imagenet" to force one set; None chooses by image size
    """
    pixels = _as_pixels(images)
    count, height, width, _ = pixels.shape
    c = constants_for(check_name(name), severity, height, width, constants)
    places = _as_indices(indices, count).tolist()
    random = ImageRandom(seed, name, severity)
    result = np.empty_like(pixels, order="C")
    chunk = max(CHUNK // (height * width * 3), 1)
    for start in range(0, count, chunk):
        part = slice(start, start + chunk)
        draws = draws_for(name, c, height, width, random, places[part])
        result[part] = _BY_NAME[name].apply(pixels[part], c, draws)
    return result
