"""Snow: blown flakes over a whitened image."""

from __future__ import annotations

import numpy as np

from .base import Corruption, Draws, Floats, Pixels, per_channel, to_pixels
from .blur import zoom_crop, zoom_matrix
from .constants import Constants
from .motion import motion, motion_taps

__all__ = ["SNOW"]

LUMA = np.array([0.299, 0.587, 0.114])


def _draw(rng: np.random.Generator, height: int, width: int, c: Constants) -> Draws:
    """Normals for the middle part that the zoom spreads over the image, and the wind."""
    shape = (zoom_crop(height, c[2])[1], zoom_crop(width, c[2])[1])
    return {"normal": rng.standard_normal(shape), "angle": np.asarray(rng.uniform(-135.0, -45.0))}


def flakes(normal: Floats, height: int, width: int, c: Constants) -> Floats:
    """(N, H, W) flakes in whole levels 0..255, before the wind."""
    mean, sigma, zoom, threshold = c[:4]
    layer = normal * sigma + mean
    if zoom != 1:
        layer = zoom_matrix(height, zoom) @ (layer @ zoom_matrix(width, zoom).T)
    layer[layer < threshold] = 0.0
    return to_pixels(layer * 255.0).astype(np.float64)


def snow(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    """w x + (1 − w) max(x, 1.5 gray + 0.5), plus the flakes, plus the flakes turned by 180°."""
    height, width = images.shape[1:3]
    weights, weight = motion_taps(c[4], c[5]), c[6]
    layer = flakes(np.asarray(draws["normal"], dtype=np.float64), height, width, c)
    for place, angle in enumerate(draws["angle"].tolist()):
        layer[place] = np.rint(motion(layer[place], weights, angle))
    layer += layer[:, ::-1, ::-1].copy()
    gray = images[..., 0] * LUMA[0]
    gray += images[..., 1] * LUMA[1]
    gray += images[..., 2] * LUMA[2]
    gray *= 1.5
    gray += 127.5
    levels = per_channel(gray)
    flat = images.reshape(levels.shape)
    np.maximum(levels, flat, out=levels)
    levels *= 1.0 - weight
    levels += flat * weight
    levels += per_channel(layer)
    return to_pixels(levels).reshape(images.shape)


SNOW = Corruption("snow", snow, _draw)
