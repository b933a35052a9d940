"""Blur, one image at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from plain_pixels import Array, Draws, scaled, truncate
from scipy import ndimage, signal


def blurred(x: Array, sigma: float) -> Array:
    return np.asarray(ndimage.gaussian_filter(x, (sigma, sigma, 0), mode="nearest", truncate=4))


def gaussian_blur(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    return truncate(blurred(scaled(image), c[0]))


def defocus_blur(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    radius, alias = c
    reach, taps = (8, 3) if radius <= 8 else (int(radius), 5)
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    kernel = (x**2 + y**2 <= radius**2).astype(float)
    kernel /= kernel.sum()
    line = np.exp(-((np.arange(taps) - taps // 2) ** 2) / (2 * alias**2))
    line /= line.sum()
    kernel = ndimage.correlate1d(kernel, line, axis=0, mode="mirror")
    kernel = ndimage.correlate1d(kernel, line, axis=1, mode="mirror")
    padded = np.pad(scaled(image), ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    channels = [signal.fftconvolve(padded[..., k], kernel, mode="valid") for k in range(3)]
    return truncate(np.stack(channels, axis=-1))


def glass_blur(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    sigma, delta, rounds = c[0], max(round(c[1]), 1), max(round(c[2]), 1)
    height, width = image.shape[:2]
    x = truncate(blurred(scaled(image), sigma))
    for scan in range(rounds):
        for row in range(height - delta, delta, -1):
            for column in range(width - delta, delta, -1):
                if draws is None:
                    dx, dy = rng.integers(-delta, delta, size=2)
                else:
                    dy, dx = draws["offset"][scan, :, row - delta - 1, column - delta - 1]
                x[row, column] = x[row + dy, column + dx]
    return truncate(blurred(scaled(x), sigma))


def moved(x: Array, radius: float, sigma: float, degrees: float) -> Array:
    """Motion blur: taps along the direction, edges repeated."""
    height, width = x.shape[:2]
    angle = np.deg2rad(degrees)
    weights = np.exp(-(np.arange(2 * round(radius) + 1) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    total = np.zeros_like(x)
    for step, weight in enumerate(weights):
        down, right = (int(np.ceil(step * f(angle) - 0.5)) for f in (np.sin, np.cos))
        rows = np.clip(np.arange(height) + down, 0, height - 1)
        columns = np.clip(np.arange(width) + right, 0, width - 1)
        total += weight * x[rows][:, columns]
    return total


def motion_blur(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    angle = rng.uniform(-45, 45) if draws is None else float(draws["angle"])
    return truncate(moved(scaled(image), c[0], c[1], angle))


def zoomed(x: Array, factor: float, height: int, width: int) -> Array:
    """The center of x spread over height x width."""
    crop = x[middle_part(height, factor), middle_part(width, factor)]
    large = ndimage.zoom(crop, (factor, factor, 1)[: x.ndim], order=1)
    top, left = (large.shape[0] - height) // 2, (large.shape[1] - width) // 2
    return np.asarray(large[top : top + height, left : left + width])


def middle_part(size: int, factor: float) -> slice:
    crop = int(np.ceil(size / factor))
    return slice((size - crop) // 2, (size - crop) // 2 + crop)


def zoom_blur(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    x = scaled(image)
    factors = np.arange(1, c[0], c[1])
    total = x.copy()
    for factor in factors:
        total += zoomed(x, factor, *x.shape[:2])
    return truncate(total / (len(factors) + 1))
