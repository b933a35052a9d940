"""Brightness, contrast and saturation."""

from __future__ import annotations

import numpy as np

from .base import Corruption, Draws, Floats, Pixels, from_planar, planar, to_pixels
from .constants import Constants

__all__ = ["BRIGHTNESS", "CONTRAST", "SATURATE"]


def brightness(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    """Add c to the value of HSV.

    With hue and saturation kept, every channel scales like the largest one, V = max(r, g, b): the
    result depends on (V, channel) only, a table of 256 x 256. Black has no hue and turns gray.
    """
    value = np.arange(256.0)
    raised = np.minimum(value + 255.0 * c[0], 255.0)
    scale = raised / np.maximum(value, 1.0)
    levels = scale[:, None] * np.arange(256.0)
    levels[0] = raised[0]
    table = to_pixels(levels).ravel()
    largest = np.maximum(np.maximum(images[..., 0], images[..., 1]), images[..., 2])
    index = np.repeat(largest.astype(np.uint16) << 8, 3, axis=-1)
    index += images.reshape(index.shape)
    return table[index].reshape(images.shape)


def contrast(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    """(x − mean) c + mean, with the mean of each channel of each image."""
    count, height, width, _ = images.shape
    lines = images.reshape(count, height, width * 3)
    column = lines.sum(axis=1, dtype=np.int32).reshape(count, width, 3)
    mean = column.sum(axis=1, dtype=np.int64) / (height * width)
    levels: Floats = lines * np.float64(c[0])
    levels += np.tile(mean * (1.0 - c[0]), width)[:, None]
    return to_pixels(levels).reshape(images.shape)


def saturate(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    """S a + b, clipped, in HSV: channel = V (1 − S (V − channel) / (V − min)).

    A gray pixel has hue 0, red, so an offset b tints it: its green and blue move away from V.
    """
    planes = planar(images)
    value = planes.max(axis=1)
    spread = value - planes.min(axis=1)
    saturation = np.clip(spread / np.maximum(value, 1.0) * c[0] + c[1], 0.0, 1.0)
    gray = spread == 0
    share = (value[:, None] - planes) / np.where(gray, 1.0, spread)[:, None]
    for channel in (1, 2):
        share[:, channel][gray] = 1.0
    return from_planar(value[:, None] * (1.0 - saturation[:, None] * share))


BRIGHTNESS = Corruption("brightness", brightness)
CONTRAST = Corruption("contrast", contrast)
SATURATE = Corruption("saturate", saturate)
