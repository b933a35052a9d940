"""Fog: a plasma fractal laid over the image."""

from __future__ import annotations

import numpy as np

from .base import Corruption, Draws, Floats, Pixels, per_channel, to_pixels
from .constants import Constants

__all__ = ["FOG", "plasma"]


def _map_size(height: int, width: int) -> int:
    """The power of two that covers the image."""
    return int(2 ** max(int(np.ceil(np.log2(max(height, width)))), 1))


def plasma(uniform: Floats, size: int, decay: float) -> Floats:
    """(N, size, size) heights in [0, 1] by midpoint displacement on a torus.

    Each level halves the step: centers of squares first, then the centers of the diamonds around
    them, each the mean of its four neighbors plus a random part. `uniform` is (N, size² − 1) in
    [−1, 1]; the random part is wibble² · uniform and wibble shrinks by `decay` from level to level.
    """
    height: Floats = np.zeros((len(uniform), size, size))
    step, wibble, used = size, 100.0, 0

    def middle(total: Floats) -> Floats:
        nonlocal used
        shape = total.shape
        count = shape[1] * shape[2]
        part = uniform[:, used : used + count].reshape(shape)
        used += count
        return total / 4 + wibble * wibble * part

    while step >= 2:
        half = step // 2
        corner = height[:, ::step, ::step]
        pair = corner + np.roll(corner, -1, axis=1)
        center = middle(pair + np.roll(pair, -1, axis=2))
        height[:, half::step, half::step] = center
        beside = center + np.roll(center, 1, axis=1) + corner + np.roll(corner, -1, axis=2)
        height[:, ::step, half::step] = middle(beside)
        above = center + np.roll(center, 1, axis=2) + corner + np.roll(corner, -1, axis=1)
        height[:, half::step, ::step] = middle(above)
        step = half
        wibble /= decay
    height -= height.min(axis=(1, 2), keepdims=True)
    height /= height.max(axis=(1, 2), keepdims=True)
    return height


def _draw(rng: np.random.Generator, height: int, width: int, c: Constants) -> Draws:
    return {"uniform": rng.uniform(-1.0, 1.0, _map_size(height, width) ** 2 - 1)}


def fog(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    """(x + a plasma) max / (max + a), with max the brightest value of the image."""
    height, width = images.shape[1:3]
    strength = 255.0 * c[0]
    haze = plasma(np.asarray(draws["uniform"], dtype=np.float64), _map_size(height, width), c[1])
    levels = per_channel(strength * haze[:, :height, :width])
    levels += images.reshape(levels.shape)
    brightest = images.max(axis=(1, 2, 3)).astype(np.float64)[:, None, None]
    levels *= brightest / (brightest + strength)
    return to_pixels(levels).reshape(images.shape)


FOG = Corruption("fog", fog, _draw)
