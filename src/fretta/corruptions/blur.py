"""Blur without randomness: gaussian, defocus, zoom; and the gaussian that others build on."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Corruption, Draws, Floats, Pixels, from_planar, planar, to_pixels
from .constants import Constants
from .extras import scipy_module

__all__ = ["DEFOCUS_BLUR", "GAUSSIAN_BLUR", "ZOOM_BLUR", "gaussian", "zoom_matrix"]


def border(position: NDArray[np.int64], size: int, mode: str) -> NDArray[np.int64]:
    """Where a position outside 0..size-1 reads: "nearest" a|abc|c, "reflect" a|abc|c doubled
    (cb a|abc|c ba), "mirror" without repeating the edge (cb|abc|ba)."""
    if mode == "nearest" or size == 1:
        return np.clip(position, 0, size - 1)
    period = 2 * size if mode == "reflect" else 2 * size - 2
    fold = period - 1 if mode == "reflect" else period
    if position.min() < -size or position.max() >= 2 * size:  # folds more than once
        position = np.mod(position, period)
    position = np.maximum(position, fold - period - position)
    return np.minimum(position, fold - position)


@lru_cache(maxsize=32)
def gaussian_matrix(size: int, sigma: float, mode: str, truncate: float) -> Floats:
    """The (size, size) matrix that blurs a line, borders included.

    One matrix product per axis costs the same for any sigma, and treats any border exactly.
    """
    radius = int(truncate * sigma + 0.5)
    matrix = np.eye(size)
    if radius == 0:
        return matrix
    taps = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (taps / sigma) ** 2)
    weights /= weights.sum()
    matrix[:] = 0.0
    rows = np.arange(size)
    for tap, weight in zip(taps, weights, strict=True):
        np.add.at(matrix, (rows, border(rows + tap, size, mode)), weight)
    return matrix


def gaussian(planes: Floats, sigma: float, mode: str = "nearest", truncate: float = 4.0) -> Floats:
    """Blur the last two axes."""
    height, width = planes.shape[-2:]
    if int(truncate * sigma + 0.5) == 0:
        return planes
    across = planes @ gaussian_matrix(width, sigma, mode, truncate).T
    blurred: Floats = gaussian_matrix(height, sigma, mode, truncate) @ across
    return blurred


def gaussian_blur(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    return from_planar(gaussian(planar(images), c[0]))


def _line(sigma: float, taps: int) -> Floats:
    offsets = np.arange(taps) - (taps - 1) / 2
    weights = np.exp(-0.5 * (offsets / sigma) ** 2)
    return np.asarray(weights / weights.sum())


@lru_cache(maxsize=32)
def disk(radius: float, alias: float) -> Floats:
    """A disk of this radius, its edge softened by a small gaussian (3x3 up to radius 8, then 5x5).

    The canvas ends at max(8, radius) pixels from the center and the softening mirrors there, so
    from radius 8 on the weights sum to a little more than 1, and the benchmark's images are that
    much brighter.
    """
    reach = 8 if radius <= 8 else int(radius)
    taps = 3 if radius <= 8 else 5
    axis = np.arange(-reach, reach + 1)
    kernel = (axis[:, None] ** 2 + axis[None, :] ** 2 <= radius**2).astype(np.float64)
    kernel /= kernel.sum()
    size = len(axis)
    soften = np.zeros((size, size))
    for tap, weight in enumerate(_line(alias, taps)):
        where = border(np.arange(size) + tap - taps // 2, size, "mirror")
        np.add.at(soften, (np.arange(size), where), weight)
    kernel = soften @ kernel @ soften.T
    kernel[kernel < 1e-12] = 0.0  # the far tail of the softening is below any level
    filled = np.abs(np.argwhere(kernel) - reach).max()
    return kernel[reach - filled : reach + filled + 1, reach - filled : reach + filled + 1]


def _fast_length(least: int) -> int:
    """The next whole number with no prime factor above 5: quick to transform."""
    length = least
    while True:
        rest = length
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return length
        length += 1


@lru_cache(maxsize=8)
def _disk_spectrum(radius: float, alias: float, rows: int, columns: int) -> NDArray[np.complex128]:
    return np.fft.rfft2(disk(radius, alias)[::-1, ::-1], (rows, columns))


def defocus_blur(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    """Correlation with the disk; borders mirror without repeating the edge.

    Few taps are summed one by one; a large disk goes through the Fourier transform.
    """
    kernel = disk(c[0], c[1])
    reach = len(kernel) // 2
    height, width = images.shape[1:3]
    rows = border(np.arange(-reach, height + reach), height, "mirror")
    columns = border(np.arange(-reach, width + reach), width, "mirror")
    padded = planar(images[:, rows][:, :, columns])
    if np.count_nonzero(kernel) <= 40:
        levels = np.zeros((len(images), 3, height, width))
        term = np.empty_like(levels)
        for row, column in np.argwhere(kernel):
            window = padded[:, :, row : row + height, column : column + width]
            np.multiply(window, kernel[row, column], out=term)
            levels += term
    else:
        shape = _fast_length(height + 2 * reach), _fast_length(width + 2 * reach)
        spectrum = np.fft.rfft2(padded, shape)
        spectrum *= _disk_spectrum(c[0], c[1], *shape)
        whole = np.fft.irfft2(spectrum, shape)
        levels = whole[:, :, 2 * reach :, 2 * reach :][:, :, :height, :width].copy()
    return from_planar(levels)


def zoom_matrix(size: int, factor: float) -> Floats:
    """The (size, crop) matrix of a center zoom along one axis: the middle pixels that `zoom_crop`
    gives, spread linearly from the first to the last, then trimmed to `size`."""
    crop = zoom_crop(size, factor)[1]
    whole = round(crop * factor)
    at = np.arange(whole) * ((crop - 1) / (whole - 1) if whole > 1 else 0.0)
    left = np.minimum(at.astype(np.int64), max(crop - 2, 0))
    share = at - left
    matrix = np.zeros((whole, crop))
    matrix[np.arange(whole), left] = 1.0 - share
    if crop > 1:
        matrix[np.arange(whole), left + 1] += share
    trim = (whole - size) // 2
    return matrix[trim : trim + size]


def zoom_crop(size: int, factor: float) -> tuple[int, int]:
    """(start, length) of the middle part that a zoom by `factor` spreads over `size` pixels."""
    crop = ceil(size / factor)
    return (size - crop) // 2, crop


def _zooms(size: int, factors: Floats) -> list[Any]:
    """Each center zoom along one axis as a sparse (size, size) matrix."""
    sparse = scipy_module("sparse", "zoom blur")
    matrices = []
    for factor in factors:
        start, crop = zoom_crop(size, factor)
        matrix = np.zeros((size, size))
        matrix[:, start : start + crop] = zoom_matrix(size, factor)
        matrices.append(sparse.csr_array(matrix))
    return matrices


@lru_cache(maxsize=8)
def zoom_operator(height: int, width: int, end: float, step: float) -> Any:
    """The sum of the image and all its zooms, as one sparse (HW, HW) matrix."""
    sparse = scipy_module("sparse", "zoom blur")
    factors = np.arange(1, end, step)
    total = sparse.eye_array(height * width, format="csr")
    for down, across in zip(_zooms(height, factors), _zooms(width, factors), strict=True):
        total = total + sparse.kron(down, across, format="csr")
    return total


@lru_cache(maxsize=8)
def zoom_stack(size: int, end: float, step: float) -> Any:
    """All zooms along one axis below each other, (zooms * size, size)."""
    sparse = scipy_module("sparse", "zoom blur")
    return sparse.vstack(_zooms(size, np.arange(1, end, step)), format="csr")


@lru_cache(maxsize=8)
def zoom_row(size: int, end: float, step: float) -> Any:
    """All zooms along one axis beside each other, (size, zooms * size)."""
    sparse = scipy_module("sparse", "zoom blur")
    return sparse.hstack(_zooms(size, np.arange(1, end, step)), format="csr")


def zoom_blur(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    """The mean of the image and its center zooms by 1, 1 + step, ... up to `end`.

    Small images go through one matrix for all zooms at once; for large ones it would be too large
    to build, so all zooms run down the columns first and are summed on the way along the rows.
    """
    count, height, width, _ = images.shape
    end, step = float(c[0]), float(c[1])
    zooms = len(np.arange(1, end, step))
    if height * width <= 64 * 64:
        pixels = images.transpose(1, 2, 0, 3).reshape(height * width, count * 3)
        levels = zoom_operator(height, width, end, step) @ pixels.astype(np.float64)
        levels /= zooms + 1
        return to_pixels(levels).reshape(height, width, count, 3).transpose(2, 0, 1, 3)
    result = np.empty_like(images)
    for place, image in enumerate(images):
        lines = image.reshape(height, width * 3).astype(np.float64)
        down = (zoom_stack(height, end, step) @ lines).reshape(zooms, height, width, 3)
        turned = np.ascontiguousarray(down.transpose(0, 2, 1, 3)).reshape(zooms * width, height * 3)
        levels = zoom_row(width, end, step) @ turned
        levels += image.transpose(1, 0, 2).reshape(width, height * 3)
        levels /= zooms + 1
        result[place] = to_pixels(levels).reshape(width, height, 3).transpose(1, 0, 2)
    return result


GAUSSIAN_BLUR = Corruption("gaussian_blur", gaussian_blur)
DEFOCUS_BLUR = Corruption("defocus_blur", defocus_blur)
ZOOM_BLUR = Corruption("zoom_blur", zoom_blur)
