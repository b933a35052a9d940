"""Elastic transform: a random affine map, then a smooth random displacement."""

from __future__ import annotations

import numpy as np

from .base import Corruption, Draws, Floats, Pixels, to_pixels
from .blur import border, gaussian
from .constants import Constants

__all__ = ["ELASTIC_TRANSFORM", "bilinear"]


def bilinear(images: Floats, rows: Floats, columns: Floats, mode: str) -> Floats:
    """(C, N, H, W) read at fractional positions (N, H, W), outside folded back as `border` does."""
    _, count, height, width = images.shape
    top, left = np.floor(rows), np.floor(columns)
    down, across = rows - top, columns - left
    row, column = top.astype(np.int64), left.astype(np.int64)
    start = (np.arange(count) * (height * width))[:, None, None]
    upper, lower = (start + border(row + step, height, mode) * width for step in (0, 1))
    west, east = (border(column + step, width, mode) for step in (0, 1))
    corners = upper + west, upper + east, lower + west, lower + east
    result = np.empty_like(images)
    for channel, read in zip(images, result, strict=True):
        above, right, below, last = (np.take(channel, corner) for corner in corners)
        above += across * (right - above)
        below += across * (last - below)
        np.add(above, down * (below - above), out=read)
    return result


def _draw(rng: np.random.Generator, height: int, width: int, c: Constants) -> Draws:
    draws: Draws = {"points": rng.uniform(-1.0, 1.0, (3, 2))}
    if c[0] > 0:
        draws["field"] = rng.uniform(-1.0, 1.0, (2, height, width))
    return draws


def source_map(points: Floats, height: int, width: int, shift: float) -> Floats:
    """(N, 3, 2): [x, y, 1] of the result times this gives (x, y) in the image. It undoes the affine
    map that moves three corners of a square around the center by up to `shift` pixels."""
    side = min(height, width) // 3
    x, y = width // 2, height // 2
    fixed = np.array(
        [(x + side, y + side), (x + side, y - side), (x - side, y - side)], dtype=np.float64
    )
    moved = fixed + shift * points
    ones = np.ones((*moved.shape[:-1], 1))
    return np.linalg.solve(
        np.concatenate([moved, ones], axis=-1), np.broadcast_to(fixed, moved.shape)
    )


def elastic_transform(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    height, width = images.shape[1:3]
    strength, smooth, shift = c
    back = source_map(np.asarray(draws["points"], dtype=np.float64), height, width, shift)
    y, x = np.mgrid[:height, :width].astype(np.float64)

    def affine(axis: int) -> Floats:
        slope = back[:, :, axis, None, None]
        return np.asarray(slope[:, 0] * x + slope[:, 1] * y + slope[:, 2])

    planes = images.transpose(3, 0, 1, 2).astype(np.float64, order="C")
    levels = bilinear(planes, affine(1), affine(0), "mirror")
    if strength > 0:
        field = gaussian(np.asarray(draws["field"], dtype=np.float64), smooth, "reflect", 3.0)
        dx, dy = strength * field[:, 0], strength * field[:, 1]
        levels = bilinear(levels, y + dy, x + dx, "reflect")
    return np.ascontiguousarray(to_pixels(levels).transpose(1, 2, 3, 0))


ELASTIC_TRANSFORM = Corruption("elastic_transform", elastic_transform, _draw)
