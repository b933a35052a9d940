"""Pixelate and JPEG compression."""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from .base import Corruption, Draws, Pixels
from .constants import Constants
from .extras import pillow_image

__all__ = ["JPEG_COMPRESSION", "PIXELATE"]


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


PIXELATE = Corruption("pixelate", pixelate)
JPEG_COMPRESSION = Corruption("jpeg_compression", jpeg_compression)
