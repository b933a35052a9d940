"""What the corruptions share: types, randomness, the way back to uint8, optional packages."""

from __future__ import annotations

from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, MissingExtraError

Pixels = NDArray[np.uint8]  # (N, H, W, 3) by default
Floats = NDArray[np.float64]
Draws = dict[str, NDArray[Any]]  # random numbers, one row per image


class ImageRandom:
    """Random numbers that depend on (seed, corruption, severity, index of the image), nothing else.

    Philox is counter based: setting its key is all it takes to start the stream of another image.
    """

    def __init__(self, seed: int, name: str, severity: float) -> None:
        text = f"{seed}/{name}/{float(severity)!r}".encode()
        key = int.from_bytes(blake2b(text, digest_size=8).digest(), "little")
        self._bits = np.random.Philox(key=np.array([key, 0], dtype=np.uint64))
        self._generator = np.random.Generator(self._bits)
        self._start = self._bits.state

    def of(self, index: int) -> np.random.Generator:
        """The generator at the beginning of one image's stream (the same object every time)."""
        self._start["state"]["key"][1] = index
        self._bits.state = self._start
        return self._generator


def raw_uint16(rng: np.random.Generator, count: int) -> NDArray[np.uint16]:
    """`count` uniform 16-bit integers, four from each raw 64-bit word."""
    words = np.asarray(rng.bit_generator.random_raw(-(-count // 4)), dtype=np.uint64)
    return words.view(np.uint16)[:count]


GUARD = 1.37e-4
"""Added before truncation, in gray levels. A result that is a whole number in exact arithmetic
comes out a hair above or below it depending on the order of the sums; without the guard it would
lose a level at random. The value is no simple fraction, so no rule lands on its edge."""


def to_pixels(levels: Floats) -> Pixels:
    """Gray levels to uint8, clipped and truncated as the benchmark does. Overwrites `levels`."""
    np.add(levels, GUARD, out=levels)
    np.clip(levels, 0.0, 255.0, out=levels)
    return levels.astype(np.uint8)


def planar(images: Pixels) -> Floats:
    """(N, H, W, 3) uint8 to (N, 3, H, W) float64 gray levels."""
    return images.transpose(0, 3, 1, 2).astype(np.float64, order="C")


def per_channel(planes: Floats) -> Floats:
    """(N, H, W) to (N, H, 3 W): every value once for each channel, laid out like the images, so
    that sums run over whole rows instead of three values at a time."""
    return np.repeat(planes, 3, axis=-1)


def from_planar(levels: Floats) -> Pixels:
    """(N, 3, H, W) gray levels to (N, H, W, 3) uint8."""
    return np.ascontiguousarray(to_pixels(levels).transpose(0, 2, 3, 1))


def pillow_image(purpose: str) -> Any:
    """Pillow's Image, or the error that says how to get it."""
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        raise MissingExtraError("pillow", "data", purpose) from error


def scipy_module(name: str, purpose: str) -> Any:
    """A part of scipy, or the error that says how to get it."""
    try:
        return import_module(f"scipy.{name}")
    except ImportError as error:
        raise MissingExtraError("scipy", "data", purpose) from error


def read_rgb(path: Path) -> Pixels:
    """An image file as (H, W, 3) uint8; a damaged one is a DataError that names it."""
    opener = pillow_image("reading an image file")
    try:
        with opener.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"unreadable image {path}: {error}") from error
