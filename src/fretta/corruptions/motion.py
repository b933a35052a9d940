"""Motion blur along one direction per image."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Corruption, Draws, Floats, Pixels, to_pixels
from .constants import Constants
from .extras import scipy_module

__all__ = ["MOTION_BLUR", "motion", "motion_taps"]


def motion_taps(radius: float, sigma: float) -> Floats:
    """One side of a gaussian: 2 radius + 1 weights for the distances 0, 1, 2, ... pixels."""
    distance = np.arange(2 * round(radius) + 1)
    weights = np.exp(-0.5 * (distance / sigma) ** 2)
    return np.asarray(weights / weights.sum())


def motion_offsets(taps: int, degrees: float) -> NDArray[np.int64]:
    """(taps, 2): the pixel (row, column) away at which each tap reads; halves round down."""
    angle = np.deg2rad(degrees)
    distance = np.arange(taps)[:, None]
    steps = np.ceil(distance * np.array([np.sin(angle), np.cos(angle)]) - 0.5)
    return np.asarray(steps, dtype=np.int64)


def motion(image: NDArray[Any], weights: Floats, degrees: float) -> Floats:
    """Blur one (H, W, ...) image: the weighted sum of shifted copies, edges repeated."""
    height, width = image.shape[:2]
    offsets = motion_offsets(len(weights), degrees)
    # A shift past the opposite edge reads the edge, like a shift up to it.
    offsets = np.clip(offsets, (1 - height, 1 - width), (height - 1, width - 1))
    low, high = offsets.min(axis=0), offsets.max(axis=0)
    rows = np.clip(np.arange(low[0], height + high[0] + 1), 0, height - 1)  # one row to spare
    columns = np.clip(np.arange(low[1], width + high[1]), 0, width - 1)
    padded = image[rows][:, columns].astype(np.float64, order="C")
    # In reading order a shift is one offset and all rows one vector: total += weight * vector.
    pixel = int(np.prod(padded.shape[2:]))
    line = padded.shape[1] * pixel
    source, total = padded.reshape(-1), np.zeros(height * line)
    starts = ((offsets - low) @ np.array([line, pixel])).tolist()
    axpy = scipy_module("linalg.blas", "motion blur and snow").daxpy
    for start, weight in zip(starts, weights.tolist(), strict=True):
        axpy(source, total, n=total.size, a=weight, offx=start)
    return total.reshape(height, *padded.shape[1:])[:, :width]


def _draw(rng: np.random.Generator, height: int, width: int, c: Constants) -> Draws:
    return {"angle": np.asarray(rng.uniform(-45.0, 45.0))}


def motion_blur(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    weights = motion_taps(c[0], c[1])
    result = np.empty_like(images)
    for place, (image, angle) in enumerate(zip(images, draws["angle"].tolist(), strict=True)):
        result[place] = to_pixels(motion(image, weights, angle))
    return result


MOTION_BLUR = Corruption("motion_blur", motion_blur, _draw)
