"""Brightness, contrast, saturation, elastic transform, pixelate, JPEG compression."""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from .base import Draws, Floats, Pixels, from_planar, pillow_image, planar, to_pixels
from .blur import border, gaussian
from .constants import Constants


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


def elastic_draw(rng: np.random.Generator, height: int, width: int, c: Constants) -> Draws:
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


@lru_cache(maxsize=16)
def box_matrix(size: int, target: int) -> NDArray[np.float32]:
    """The (target, size) matrix of a box filter: the mean of the pixels whose center lies in the
    box, at least the one that the center of the box falls on."""
    scale = size / target
    reach = 0.5 * max(scale, 1.0)
    matrix = np.zeros((target, size), dtype=np.float32)
    for place in range(target):
        center = (place + 0.5) * scale
        first, last = max(int(center - reach + 0.5), 0), min(int(center + reach + 0.5), size)
        offset = (np.arange(first, last) + 0.5 - center) / max(scale, 1.0)
        inside = (offset > -0.5) & (offset <= 0.5)
        matrix[place, first:last] = inside / inside.sum()
    return matrix


def _nearest_up(size: int, target: int) -> NDArray[np.int64]:
    """Enlarging with a box reads one pixel: the one below the center."""
    return np.minimum(((np.arange(target) + 0.5) * (size / target)).astype(np.int64), size - 1)


def pixelate(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    """Shrink with a box filter to c times the size, first across then down, each step rounded to
    whole levels; enlarge again."""
    height, width = images.shape[1:3]
    rows, columns = max(int(height * c[0]), 1), max(int(width * c[0]), 1)
    # A mean of k whole numbers is a multiple of 1 / k: float32 is close enough to round it right.
    planes = images.transpose(0, 3, 1, 2).astype(np.float32, order="C")
    if columns != width:
        planes = np.floor(planes @ box_matrix(width, columns).T + np.float32(0.501))
    if rows != height:
        planes = np.floor(box_matrix(height, rows) @ planes + np.float32(0.501))
    small = planes.astype(np.uint8).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(
        small[:, _nearest_up(rows, height)][:, :, _nearest_up(columns, width)]
    )


def jpeg_compression(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    """Through JPEG at quality c and back."""
    opener = pillow_image("JPEG compression")
    result = np.empty_like(images)
    for place, image in enumerate(images):
        file = BytesIO()
        opener.fromarray(image).save(file, "JPEG", quality=round(c[0]))
        result[place] = np.asarray(opener.open(file))
    return result
