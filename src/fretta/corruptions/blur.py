"""Blur: gaussian, defocus, zoom, motion, glass."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Draws, Floats, Pixels, from_planar, planar, raw_uint16, scipy_module, to_pixels
from .constants import Constants


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
def gaussian_matrix(size: int, sigma: float, radius: int, mode: str) -> Floats:
    """The (size, size) matrix that blurs a line with 2 radius + 1 taps, borders included.

    One matrix product per axis costs the same for any sigma, and treats any border exactly.
    """
    taps = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (taps / sigma) ** 2)
    weights /= weights.sum()
    matrix = np.zeros((size, size))
    rows = np.arange(size)
    for tap, weight in zip(taps, weights, strict=True):
        np.add.at(matrix, (rows, border(rows + tap, size, mode)), weight)
    return matrix


def gaussian(planes: Floats, sigma: float, mode: str = "nearest", truncate: float = 4.0) -> Floats:
    """Blur the last two axes."""
    height, width = planes.shape[-2:]
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return planes
    across = planes @ gaussian_matrix(width, sigma, radius, mode).T
    return np.asarray(gaussian_matrix(height, sigma, radius, mode) @ across)


def gaussian_blur(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    return from_planar(gaussian(planar(images), c[0]))


# ---- defocus -------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def disk(radius: float, alias: float) -> Floats:
    """A disk of this radius, its edge softened by a small gaussian (3x3 up to radius 8, then 5x5).

    The canvas ends at max(8, radius) pixels from the center and the softening mirrors there, so
    from radius 8 on the weights sum to a little more than 1, and the benchmark's images are that
    much brighter.
    """
    reach, softening = (8, 1) if radius <= 8 else (int(radius), 2)
    axis = np.arange(-reach, reach + 1)
    kernel = (axis[:, None] ** 2 + axis[None, :] ** 2 <= radius**2).astype(np.float64)
    kernel /= kernel.sum()
    soften = gaussian_matrix(len(axis), alias, softening, "mirror")
    kernel = soften @ kernel @ soften.T
    kernel[kernel < 1e-12] = 0.0  # the far tail of the softening is below any level
    filled = np.abs(np.argwhere(kernel) - reach).max()
    return kernel[reach - filled : reach + filled + 1, reach - filled : reach + filled + 1]


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
        fast = scipy_module("fft", "defocus blur").next_fast_len
        shape = fast(height + 2 * reach, real=True), fast(width + 2 * reach, real=True)
        spectrum = np.fft.rfft2(padded, shape)
        spectrum *= _disk_spectrum(c[0], c[1], *shape)
        convolved = np.fft.irfft2(spectrum, shape)
        levels = convolved[:, :, 2 * reach :, 2 * reach :][:, :, :height, :width].copy()
    return from_planar(levels)


# ---- zoom ----------------------------------------------------------------------------------------


def zoom_matrix(size: int, factor: float) -> Floats:
    """The (size, crop) matrix of a center zoom along one axis: the middle pixels that `zoom_crop`
    gives, spread linearly from the first to the last, then trimmed to `size`."""
    crop = zoom_crop(size, factor)[1]
    zoomed = round(crop * factor)
    at = np.arange(zoomed) * ((crop - 1) / (zoomed - 1) if zoomed > 1 else 0.0)
    left = np.minimum(at.astype(np.int64), max(crop - 2, 0))
    share = at - left
    matrix = np.zeros((zoomed, crop))
    matrix[np.arange(zoomed), left] = 1.0 - share
    if crop > 1:
        matrix[np.arange(zoomed), left + 1] += share
    trim = (zoomed - size) // 2
    return matrix[trim : trim + size]


def zoom_crop(size: int, factor: float) -> tuple[int, int]:
    """(start, length) of the middle part that a zoom by `factor` spreads over `size` pixels."""
    crop = ceil(size / factor)
    return (size - crop) // 2, crop


@lru_cache(maxsize=16)
def zooms(size: int, end: float, step: float) -> list[Any]:
    """Each center zoom along one axis as a sparse (size, size) matrix."""
    sparse = scipy_module("sparse", "zoom blur")
    matrices = []
    for factor in np.arange(1, end, step):
        start, crop = zoom_crop(size, factor)
        matrix = np.zeros((size, size))
        matrix[:, start : start + crop] = zoom_matrix(size, factor)
        matrices.append(sparse.csr_array(matrix))
    return matrices


@lru_cache(maxsize=8)
def zoom_operator(height: int, width: int, end: float, step: float) -> Any:
    """The sum of the image and all its zooms, as one sparse (HW, HW) matrix."""
    sparse = scipy_module("sparse", "zoom blur")
    total = sparse.eye_array(height * width, format="csr")
    for down, across in zip(zooms(height, end, step), zooms(width, end, step), strict=True):
        total = total + sparse.kron(down, across, format="csr")
    return total


@lru_cache(maxsize=8)
def zoom_passes(height: int, width: int, end: float, step: float) -> tuple[Any, Any]:
    """All zooms down the columns, (zooms * H, H), and along the rows, (W, zooms * W)."""
    sparse = scipy_module("sparse", "zoom blur")
    down = sparse.vstack(zooms(height, end, step), format="csr")
    return down, sparse.hstack(zooms(width, end, step), format="csr")


def zoom_blur(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    """The mean of the image and its center zooms by 1, 1 + step, ... up to `end`.

    Small images go through one matrix for all zooms at once; for large ones it would be too large
    to build, so all zooms run down the columns first and are summed on the way along the rows.
    """
    count, height, width, _ = images.shape
    end, step = float(c[0]), float(c[1])
    number = len(np.arange(1, end, step))
    if height * width <= 64 * 64:
        pixels = images.transpose(1, 2, 0, 3).reshape(height * width, count * 3)
        levels = zoom_operator(height, width, end, step) @ pixels.astype(np.float64)
        levels /= number + 1
        return to_pixels(levels).reshape(height, width, count, 3).transpose(2, 0, 1, 3)
    stack, row = zoom_passes(height, width, end, step)
    result = np.empty_like(images)
    for place, image in enumerate(images):
        lines = image.reshape(height, width * 3).astype(np.float64)
        down = (stack @ lines).reshape(number, height, width, 3)
        turned = np.ascontiguousarray(down.transpose(0, 2, 1, 3)).reshape(
            number * width, height * 3
        )
        levels = row @ turned
        levels += image.transpose(1, 0, 2).reshape(width, height * 3)
        levels /= number + 1
        result[place] = to_pixels(levels).reshape(width, height, 3).transpose(1, 0, 2)
    return result


# ---- motion --------------------------------------------------------------------------------------


def motion_taps(radius: float, sigma: float) -> Floats:
    """One side of a gaussian: 2 radius + 1 weights for the distances 0, 1, 2, ... pixels."""
    distance = np.arange(2 * round(radius) + 1)
    weights = np.exp(-0.5 * (distance / sigma) ** 2)
    return np.asarray(weights / weights.sum())


def motion(image: NDArray[Any], weights: Floats, degrees: float) -> Floats:
    """Blur one (H, W, ...) image: the weighted sum of shifted copies, edges repeated."""
    height, width = image.shape[:2]
    angle = np.deg2rad(degrees)
    direction = np.array([np.sin(angle), np.cos(angle)])
    # The (row, column) away at which each tap reads; halves round down.
    offsets = np.ceil(np.arange(len(weights))[:, None] * direction - 0.5).astype(np.int64)
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


def motion_draw(rng: np.random.Generator, height: int, width: int, c: Constants) -> Draws:
    return {"angle": np.asarray(rng.uniform(-45.0, 45.0))}


def motion_blur(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    weights = motion_taps(c[0], c[1])
    result = np.empty_like(images)
    for place, (image, angle) in enumerate(zip(images, draws["angle"].tolist(), strict=True)):
        result[place] = to_pixels(motion(image, weights, angle))
    return result


# ---- glass: pixels copied from random neighbors, one after the other, between two blurs ----------


def _shifts(c: Constants) -> tuple[int, int]:
    """(largest shift, rounds), whole numbers also where the constants were interpolated."""
    return max(round(c[1]), 1), max(round(c[2]), 1)


def glass_draw(rng: np.random.Generator, height: int, width: int, c: Constants) -> Draws:
    """Offsets (rounds, 2, rows, columns) in [-delta, delta) of the pixels that are scanned."""
    delta, rounds = _shifts(c)
    shape = (rounds, 2, max(height - 2 * delta, 0), max(width - 2 * delta, 0))
    uniform = raw_uint16(rng, int(np.prod(shape))).astype(np.uint32)
    uniform *= 2 * delta
    uniform >>= 16
    return {"offset": (uniform.astype(np.int8) - np.int8(delta)).reshape(shape)}


def copy_sources(offset: NDArray[Any], height: int, width: int, delta: int) -> NDArray[np.int64]:
    """Which original pixel ends up at each place after one scan of copies, (N, H, W) flat indices.

    The scan visits rows height-delta .. delta+1 and columns likewise, both downwards, and copies
    pixel (row + dy, column + dx) onto (row, column). What a visit copies is either a pixel that was
    visited before (it lies later in reading order) or one that is still original. So every place
    points to another place or to an original, and following all pointers at once, each step
    doubling the distance, resolves chains of length L in log2 L steps.
    """
    count = len(offset)
    size = height * width
    place = np.arange(size).reshape(height, width)
    scanned = (slice(delta + 1, height - delta + 1), slice(delta + 1, width - delta + 1))
    step = offset[:, 0].astype(np.int64) * width + offset[:, 1]
    source = place[scanned] + step
    visited = np.zeros(size + 1, dtype=bool)
    visited[:size].reshape(height, width)[scanned] = True
    # Targets below zero are originals, coded as -1 - index; others are places still to follow.
    follow = (step > 0) & visited[source]
    start = (np.arange(count) * size)[:, None, None]
    target = np.broadcast_to(-1 - place, (count, height, width)).copy()
    target[:, scanned[0], scanned[1]] = np.where(follow, source + start, -1 - source)
    flat = target.reshape(-1)
    active = np.flatnonzero(flat >= 0)
    while len(active):
        flat[active] = flat[flat[active]]
        active = active[flat[active] >= 0]
    return (-1 - flat).reshape(count, height, width)


def glass_blur(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    count, height, width, _ = images.shape
    delta, rounds = _shifts(c)
    blurred = from_planar(gaussian(planar(images), c[0]))
    pixels = blurred.reshape(count * height * width, 3)
    start = (np.arange(count) * (height * width))[:, None, None]
    if min(height, width) > 2 * delta:
        offset = draws["offset"]
        chain = copy_sources(offset[:, 0], height, width, delta) + start
        for scan in range(1, rounds):
            later = copy_sources(offset[:, scan], height, width, delta) + start
            chain = chain.reshape(-1)[later]
        pixels = pixels[chain]
    return from_planar(gaussian(planar(pixels.reshape(images.shape)), c[0]))
