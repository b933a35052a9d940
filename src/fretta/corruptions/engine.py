"""corrupt(): one corruption on a whole batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, InputError
from . import blur, digital, noise, spatter, weather
from .base import Draws, ImageRandom, Pixels
from .constants import Constants, constants_for

Apply = Callable[[Pixels, Constants, Draws], Pixels]
Draw = Callable[[np.random.Generator, int, int, Constants], Draws]

# `draw` makes the random numbers of one image, `apply` treats a whole batch. Keeping the two apart
# makes a result independent of its batch, and lets a test feed the same numbers to a plain version.
_BY_NAME: dict[str, tuple[Apply, Draw | None]] = {
    "gaussian_noise": (noise.gaussian_noise, noise.normal_draw),
    "shot_noise": (noise.shot_noise, noise.shot_draw),
    "impulse_noise": (noise.impulse_noise, noise.impulse_draw),
    "defocus_blur": (blur.defocus_blur, None),
    "glass_blur": (blur.glass_blur, blur.glass_draw),
    "motion_blur": (blur.motion_blur, blur.motion_draw),
    "zoom_blur": (blur.zoom_blur, None),
    "snow": (weather.snow, weather.snow_draw),
    "frost": (weather.frost, weather.frost_draw),
    "fog": (weather.fog, weather.fog_draw),
    "brightness": (digital.brightness, None),
    "contrast": (digital.contrast, None),
    "elastic_transform": (digital.elastic_transform, digital.elastic_draw),
    "pixelate": (digital.pixelate, None),
    "jpeg_compression": (digital.jpeg_compression, None),
    "speckle_noise": (noise.speckle_noise, noise.normal_draw),
    "gaussian_blur": (blur.gaussian_blur, None),
    "spatter": (spatter.spatter, spatter.spatter_draw),
    "saturate": (digital.saturate, None),
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
    if array.shape != (count,) or (count and (array.dtype.kind not in "iu" or array.min() < 0)):
        raise ConfigError(
            f"indices is {array.dtype} {array.shape}; an integer from 0 is expected for each of the"
            f" {count} images"
        )
    return array.astype(np.int64)


def draws_for(
    name: str, c: Constants, height: int, width: int, random: ImageRandom, indices: Sequence[int]
) -> Draws:
    """The random numbers of these images, stacked."""
    draw = _BY_NAME[name][1]
    if draw is None:
        return {}
    rows = [draw(random.of(index), height, width, c) for index in indices]
    return {key: np.stack([row[key] for row in rows]) for key in rows[0]}


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
    c = constants_for(name, severity, height, width, constants)
    places = _as_indices(indices, count).tolist()
    apply, random = _BY_NAME[name][0], ImageRandom(seed, name, severity)
    result = np.empty_like(pixels, order="C")
    chunk = max(CHUNK // (height * width * 3), 1)
    for start in range(0, count, chunk):
        part = slice(start, start + chunk)
        draws = draws_for(name, c, height, width, random, places[part])
        result[part] = apply(pixels[part], c, draws)
    return result
