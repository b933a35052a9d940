"""Noise on single values: gaussian, shot, impulse, speckle."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .base import Draws, Floats, Pixels, raw_uint16, to_pixels
from .constants import Constants


def normal_draw(rng: np.random.Generator, height: int, width: int, c: Constants) -> Draws:
    return {"normal": rng.standard_normal((height, width, 3), dtype=np.float32)}


def gaussian_noise(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    """x + N(0, sigma)."""
    levels: Floats = draws["normal"].astype(np.float64)
    levels *= 255.0 * c[0]
    levels += images
    return to_pixels(levels)


def speckle_noise(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    """x + x N(0, sigma)."""
    levels: Floats = draws["normal"].astype(np.float64)
    levels *= c[0]
    levels += 1.0
    levels *= images
    return to_pixels(levels)


def shot_draw(rng: np.random.Generator, height: int, width: int, c: Constants) -> Draws:
    return {"uniform": raw_uint16(rng, height * width * 3).reshape(height, width, 3)}


@lru_cache(maxsize=5)  # one for each severity
def poisson_table(photons: float) -> Pixels:
    """Entry [level * 65536 + u]: Poisson(photons * level / 255) at quantile u / 65536, in levels.

    A pixel has only 256 values, so the inverse distribution fits a table (16 MB) and a draw is one
    look-up. Each probability is rounded to a multiple of 2^-16.
    """
    count = int(np.ceil(photons)) + 1  # from `photons` on every count is clipped to white
    k = np.arange(count)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count)))])
    values = to_pixels(np.asarray(k * (255.0 / photons), dtype=np.float64))
    table = np.full((256, 65536), 255, dtype=np.uint8)
    table[0] = 0
    for level in range(1, 256):
        mean = photons * level / 255.0
        mass = np.exp(k * np.log(mean) - mean - log_factorial)
        ends = np.rint(np.minimum(np.cumsum(mass), 1.0) * 65536).astype(np.int64)
        row = np.repeat(values, np.diff(ends, prepend=0))
        table[level, : len(row)] = row
    return table.ravel()


def shot_noise(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    """Poisson(x c) / c."""
    index = images.astype(np.int32)
    index <<= 16
    index += draws["uniform"]
    return poisson_table(float(c[0]))[index]


def impulse_draw(rng: np.random.Generator, height: int, width: int, c: Constants) -> Draws:
    both = raw_uint16(rng, 2 * height * width * 3).view(np.uint32)
    return {"uniform": both.reshape(height, width, 3)}


def impulse_noise(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    """Salt and pepper: a value is hit where its uniform number is below c, and the hit is white or
    black by that number's lowest bit, which the comparison leaves free."""
    uniform = draws["uniform"].astype(np.uint32, copy=False)
    hit = uniform < np.uint32(c[0] * 2.0**32)
    salt = (uniform & np.uint32(1)).astype(np.uint8) * np.uint8(255)
    return np.where(hit, salt, images)
