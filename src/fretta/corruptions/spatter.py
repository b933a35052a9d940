"""Spatter: drops of water (mild severities) or mud (strong ones) on the lens."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Draws, Floats, Pixels, scipy_module, to_pixels
from .blur import gaussian
from .constants import Constants

Integers = NDArray[np.int64]

WATER = np.array([175.0, 238.0, 238.0])  # pale turquoise
MUD = np.array([63.0, 42.0, 20.0])  # brown
FAR = 20.0  # distances beyond this count as this


def _correlate(planes: NDArray[Any], kernel: NDArray[Any], mode: str) -> NDArray[Any]:
    """Correlation of each plane of (N, H, W) with a 3 x 3 kernel."""
    ndimage = scipy_module("ndimage", "spatter")
    return np.asarray(ndimage.correlate(planes, kernel[None], mode=mode))


SOBEL = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
BOX = np.ones((3, 3), dtype=np.int64)
EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])


def edges(layer: Pixels, low: int = 50, high: int = 150) -> NDArray[np.bool_]:
    """Canny's edges with |gx| + |gy|: thin ridges above `low` that touch one above `high`."""
    levels = layer.astype(np.int64)
    gx, gy = _correlate(levels, SOBEL, "nearest"), _correlate(levels, SOBEL.T, "nearest")
    size: Integers = np.abs(gx) + np.abs(gy)
    around = np.pad(size, ((0, 0), (1, 1), (1, 1)))
    height, width = size.shape[1:]

    def at(down: int, right: int) -> Integers:
        return around[:, 1 + down : 1 + down + height, 1 + right : 1 + right + width]

    flat = np.tan(np.pi / 8) * np.abs(gx)  # the gradient is within 22.5° of the row
    across = np.abs(gy) < flat
    upright = np.abs(gy) > flat + 2 * np.abs(gx)  # tan 67.5° = tan 22.5° + 2
    rising = (gx < 0) ^ (gy < 0)
    ridge = np.where(
        across,
        (size > at(0, -1)) & (size >= at(0, 1)),
        np.where(
            upright,
            (size > at(-1, 0)) & (size >= at(1, 0)),
            np.where(
                rising,
                (size > at(-1, 1)) & (size > at(1, -1)),
                (size > at(-1, -1)) & (size > at(1, 1)),
            ),
        ),
    )
    ridge &= size > low
    ndimage = scipy_module("ndimage", "spatter")
    touching = np.ones((1, 3, 3))
    return np.asarray(ndimage.binary_propagation(ridge & (size > high), touching, ridge))


STEPS = (
    *(((down, right), 1.0) for down, right in ((0, 1), (1, 0))),
    *(((down, right), 1.4) for down, right in ((1, 1), (1, -1))),
    *(((down, right), 2.1969) for down, right in ((1, 2), (2, 1), (1, -2), (2, -1))),
)


def distance(edge: NDArray[np.bool_]) -> Floats:
    """Distance to the nearest edge, at most FAR, by steps to the side (1), diagonal (1.4) and of
    the chess knight (2.1969): a close bound of the straight line that the benchmark uses."""
    height, width = edge.shape[1:]
    padded = np.full((len(edge), height + 4, width + 4), FAR)
    inner = padded[:, 2:-2, 2:-2]
    inner[edge] = 0.0
    while True:
        before = inner.copy()
        for (down, right), cost in STEPS:
            for sign in (1, -1):
                row, column = 2 + sign * down, 2 + sign * right
                window = padded[:, row : row + height, column : column + width]
                np.minimum(inner, window + cost, out=inner)
        if np.array_equal(inner, before):
            return before


def equalize(values: Integers) -> Integers:
    """Histogram equalization of one image of whole numbers below 256."""
    counts = np.bincount(values.ravel(), minlength=256)
    first = int(np.flatnonzero(counts)[0])
    rest = values.size - int(counts[first])
    if rest == 0:
        return values
    counts[: first + 1] = 0
    table = np.rint(np.cumsum(counts) * (255.0 / rest)).astype(np.int64)
    return np.asarray(table[values])


def water(layer: Floats) -> Floats:
    """How much water lies where, (N, H, W): the layer, embossed by the distance to its edges, with
    maximum 1."""
    drops = to_pixels(layer * 255.0)
    depth = distance(edges(drops))
    levels = to_pixels(_correlate(depth, BOX, "mirror") / 9).astype(np.int64)
    levels = np.stack([equalize(image) for image in levels])
    levels = np.clip(_correlate(levels, EMBOSS, "mirror"), 0, 255)
    levels = np.rint(_correlate(levels, BOX, "mirror") / 9).astype(np.int64)
    amount = drops * levels.astype(np.float64)
    top = amount.max(axis=(1, 2), keepdims=True)
    return np.asarray(amount / np.where(top > 0, top, 1.0))


def spatter_draw(rng: np.random.Generator, height: int, width: int, c: Constants) -> Draws:
    return {"normal": rng.standard_normal((height, width))}


def spatter(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    mean, sigma, smooth, threshold, strength, mud = c
    layer = gaussian(np.asarray(draws["normal"], dtype=np.float64) * sigma + mean, smooth)
    if mud >= 0.5:
        cover = gaussian((layer > threshold).astype(np.float64), strength)
        cover[cover < 0.8] = 0.0
        return to_pixels(images * (1.0 - cover[..., None]) + cover[..., None] * MUD)
    layer[layer < threshold] = 0.0
    return to_pixels(images + (strength * water(layer))[..., None] * WATER)
