"""Water drops on the lens, pixel by pixel: Canny's edges, distances, equalisation, embossing."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import ndimage

Array = np.ndarray[Any, np.dtype[Any]]


def canny(layer: Array, low: int = 50, high: int = 150) -> Array:
    height, width = layer.shape
    whole = layer.astype(int)
    gx = ndimage.correlate(whole, np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]), mode="nearest")
    gy = ndimage.correlate(whole, np.array([[-1, -2, -1], [0, 0, 0], [1, 2, 1]]), mode="nearest")
    size = np.pad(abs(gx) + abs(gy), 1)
    ridge = np.zeros(layer.shape, dtype=bool)
    for row in range(height):
        for column in range(width):
            i, j = row + 1, column + 1
            here, x, y = size[i, j], gx[row, column], gy[row, column]
            if here <= low:
                continue
            slope = abs(y) / abs(x) if x else np.inf
            if slope < np.tan(np.pi / 8):
                keep = here > size[i, j - 1] and here >= size[i, j + 1]
            elif slope > np.tan(3 * np.pi / 8):
                keep = here > size[i - 1, j] and here >= size[i + 1, j]
            else:
                side = -1 if (x < 0) != (y < 0) else 1
                keep = here > size[i - 1, j - side] and here > size[i + 1, j + side]
            ridge[row, column] = keep
    # A ridge counts if the connected ridge it belongs to is strong somewhere.
    labels, _ = ndimage.label(ridge, structure=np.ones((3, 3)))
    strong = np.unique(labels[ridge & (size[1:-1, 1:-1] > high)])
    return np.isin(labels, strong) & ridge


def chamfer(edge: Array, far: float = 20.0) -> Array:
    """Two passes, each pixel looking at the neighbors that were visited before it."""
    height, width = edge.shape
    padded = np.full((height + 4, width + 4), far)
    padded[2:-2, 2:-2][edge] = 0
    steps = [((0, -1), 1.0), ((-1, 0), 1.0), ((-1, -1), 1.4), ((-1, 1), 1.4)]
    steps += [((-1, -2), 2.1969), ((-2, -1), 2.1969), ((-2, 1), 2.1969), ((-1, 2), 2.1969)]
    for sign in (1, -1):
        for row in range(2, height + 2)[::sign]:
            for column in range(2, width + 2)[::sign]:
                for (down, right), cost in steps:
                    other = padded[row + sign * down, column + sign * right] + cost
                    padded[row, column] = min(padded[row, column], other)
    return padded[2:-2, 2:-2]


def equalised(values: Array) -> Array:
    flat = np.sort(values.ravel())
    lowest = np.count_nonzero(flat == flat[0])
    if lowest == flat.size:
        return values
    table = {
        int(v): np.rint((np.count_nonzero(flat <= v) - lowest) * 255.0 / (flat.size - lowest))
        for v in np.unique(flat)
    }
    return np.vectorize(table.__getitem__)(values)


def water(drops: Array) -> Array:
    depth = ndimage.correlate(chamfer(canny(drops)), np.full((3, 3), 1 / 9), mode="mirror")
    levels = equalised((depth + 1.37e-4).astype(int))
    emboss = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    levels = np.clip(ndimage.correlate(levels.astype(int), emboss, mode="mirror"), 0, 255)
    levels = np.rint(ndimage.correlate(levels, np.ones((3, 3), int), mode="mirror") / 9)
    amount = drops * levels
    return amount / amount.max() if amount.max() > 0 else amount
