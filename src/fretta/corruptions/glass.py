"""Glass blur: pixels copied from random neighbors, one after the other, between two blurs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Corruption, Draws, Pixels, from_planar, planar, raw_uint16
from .blur import gaussian
from .constants import Constants

__all__ = ["GLASS_BLUR", "copy_sources"]


def _shifts(c: Constants) -> tuple[int, int]:
    """(largest shift, rounds), whole numbers also where the constants were interpolated."""
    return max(round(c[1]), 1), max(round(c[2]), 1)


def _draw(rng: np.random.Generator, height: int, width: int, c: Constants) -> Draws:
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


GLASS_BLUR = Corruption("glass_blur", glass_blur, _draw)
