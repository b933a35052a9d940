"""Frost: part of a photograph of frost added to the image."""

from __future__ import annotations

import warnings
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import FrettaWarning
from .base import Corruption, Draws, Floats, Pixels, to_pixels
from .constants import Constants
from .extras import read_rgb
from .fog import plasma

__all__ = ["FROST", "photographs"]

# The benchmark has six photographs and draws from the first five.
NAMES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")


def photograph_folder() -> Path | None:
    """Where the package `imagecorruptions` keeps its photographs. Looked up, never imported."""
    spec = find_spec("imagecorruptions")
    if spec is None:
        return None
    for place in spec.submodule_search_locations or []:
        folder = Path(place) / "frost"
        if all((folder / name).is_file() for name in NAMES):
            return folder
    return None


def procedural(number: int) -> Pixels:
    """A frost-like texture, 512 x 512: bright ridges of a plasma fractal on a bluish ground."""
    rng = np.random.default_rng(number)
    size = 512
    uniform = rng.uniform(-1.0, 1.0, (2, size * size - 1))
    cloud, grain = plasma(uniform, size, 1.5)
    ridges = 1.0 - np.abs(2.0 * grain - 1.0)  # bright where the height crosses the middle
    light = 0.35 + 0.4 * cloud + 0.35 * ridges**3
    levels: Floats = 255.0 * light[..., None] * np.array([0.88, 0.95, 1.0])
    return to_pixels(levels)


@cache
def photographs() -> tuple[Pixels, ...]:
    """The five photographs, or five procedural textures and a warning where they are missing."""
    folder = photograph_folder()
    if folder is None:
        warnings.warn(
            "frost uses procedural textures because the photographs of the benchmark are not "
            "installed; results will differ from published ones. "
            "Get them: pip install 'fretta[frost]'",
            FrettaWarning,
            stacklevel=2,
        )
        return tuple(procedural(number) for number in range(len(NAMES)))
    return tuple(read_rgb(folder / name) for name in NAMES)


def _resized(photograph: Pixels, scale: float) -> Pixels:
    """Linear interpolation at pixel centers, without smoothing, as the benchmark shrinks them."""

    def axis(size: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
        at = (np.arange(round(size * scale)) + 0.5) / scale - 0.5
        at = np.clip(at, 0, size - 1)
        low = at.astype(np.int64)
        return low, np.minimum(low + 1, size - 1), at - low

    if scale == 1:
        return photograph
    top, bottom, down = axis(photograph.shape[0])
    left, right, across = axis(photograph.shape[1])
    down, across = down[:, None, None], across[:, None]
    rows = photograph[top] * (1 - down) + photograph[bottom] * down
    levels = rows[:, left] * (1 - across) + rows[:, right] * across
    return np.asarray(np.rint(levels), dtype=np.uint8)


@lru_cache(maxsize=10)
def scaled(number: int, scale: float, height: int, width: int) -> Pixels:
    """One photograph at this scale, or larger if it has to be to cover an image of this size."""
    photograph = photographs()[number]
    rows, columns = photograph.shape[:2]
    return _resized(photograph, max(scale, (height + 1) / rows, (width + 1) / columns))


def _draw(rng: np.random.Generator, height: int, width: int, c: Constants) -> Draws:
    return {"photograph": np.asarray(rng.integers(len(NAMES))), "corner": rng.random(2)}


def frost(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    """a x + b (a random part of a random photograph)."""
    height, width = images.shape[1:3]
    levels: Floats = images * np.float64(c[0])
    for place, number in enumerate(draws["photograph"].tolist()):
        photograph = scaled(number, float(c[2]), height, width)
        room = np.array(photograph.shape[:2]) - (height, width)
        top, left = (draws["corner"][place] * room).astype(np.int64)
        levels[place] += c[1] * photograph[top : top + height, left : left + width]
    return to_pixels(levels)


FROST = Corruption("frost", frost, _draw)
