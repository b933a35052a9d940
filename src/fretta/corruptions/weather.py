"""Snow, frost and fog."""

from __future__ import annotations

import warnings
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import FrettaWarning
from .base import Draws, Floats, Pixels, per_channel, read_rgb, to_pixels
from .blur import motion, motion_taps, zoom_crop, zoom_matrix
from .constants import Constants

# ---- snow: blown flakes over a whitened image ----------------------------------------------------

LUMA = np.array([0.299, 0.587, 0.114])


def snow_draw(rng: np.random.Generator, height: int, width: int, c: Constants) -> Draws:
    """Normals for the middle part that the zoom spreads over the image, and the wind."""
    shape = (zoom_crop(height, c[2])[1], zoom_crop(width, c[2])[1])
    return {"normal": rng.standard_normal(shape), "angle": np.asarray(rng.uniform(-135.0, -45.0))}


def flakes(normal: Floats, height: int, width: int, c: Constants) -> Floats:
    """(N, H, W) flakes in whole levels 0..255, before the wind."""
    mean, sigma, zoom, threshold = c[:4]
    layer = normal * sigma + mean
    if zoom != 1:
        layer = zoom_matrix(height, zoom) @ (layer @ zoom_matrix(width, zoom).T)
    layer[layer < threshold] = 0.0
    return to_pixels(layer * 255.0).astype(np.float64)


def snow(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    """w x + (1 − w) max(x, 1.5 gray + 0.5), plus the flakes, plus the flakes turned by 180°."""
    height, width = images.shape[1:3]
    weights, weight = motion_taps(c[4], c[5]), c[6]
    layer = flakes(np.asarray(draws["normal"], dtype=np.float64), height, width, c)
    for place, angle in enumerate(draws["angle"].tolist()):
        layer[place] = np.rint(motion(layer[place], weights, angle))
    layer += layer[:, ::-1, ::-1].copy()
    gray = images[..., 0] * LUMA[0]
    gray += images[..., 1] * LUMA[1]
    gray += images[..., 2] * LUMA[2]
    gray *= 1.5
    gray += 127.5
    levels = per_channel(gray)
    flat = images.reshape(levels.shape)
    np.maximum(levels, flat, out=levels)
    levels *= 1.0 - weight
    levels += flat * weight
    levels += per_channel(layer)
    return to_pixels(levels).reshape(images.shape)


# ---- fog: a plasma fractal laid over the image ---------------------------------------------------


def _map_size(height: int, width: int) -> int:
    """The power of two that covers the image."""
    return int(2 ** max(int(np.ceil(np.log2(max(height, width)))), 1))


def plasma(uniform: Floats, size: int, decay: float) -> Floats:
    """(N, size, size) heights in [0, 1] by midpoint displacement on a torus.

    Each level halves the step: centers of squares first, then the centers of the diamonds around
    them, each the mean of its four neighbors plus a random part. `uniform` is (N, size² − 1) in
    [−1, 1]; the random part is wibble² · uniform and wibble shrinks by `decay` from level to level.
    """
    height: Floats = np.zeros((len(uniform), size, size))
    step, wibble, used = size, 100.0, 0

    def middle(total: Floats) -> Floats:
        nonlocal used
        shape = total.shape
        count = shape[1] * shape[2]
        part = uniform[:, used : used + count].reshape(shape)
        used += count
        return total / 4 + wibble * wibble * part

    while step >= 2:
        half = step // 2
        corner = height[:, ::step, ::step]
        pair = corner + np.roll(corner, -1, axis=1)
        center = middle(pair + np.roll(pair, -1, axis=2))
        height[:, half::step, half::step] = center
        beside = center + np.roll(center, 1, axis=1) + corner + np.roll(corner, -1, axis=2)
        height[:, ::step, half::step] = middle(beside)
        above = center + np.roll(center, 1, axis=2) + corner + np.roll(corner, -1, axis=1)
        height[:, half::step, ::step] = middle(above)
        step = half
        wibble /= decay
    height -= height.min(axis=(1, 2), keepdims=True)
    height /= height.max(axis=(1, 2), keepdims=True)
    return height


def fog_draw(rng: np.random.Generator, height: int, width: int, c: Constants) -> Draws:
    return {"uniform": rng.uniform(-1.0, 1.0, _map_size(height, width) ** 2 - 1)}


def fog(images: Pixels, c: Constants, draws: Draws) -> Pixels:
    """(x + a plasma) max / (max + a), with max the brightest value of the image."""
    height, width = images.shape[1:3]
    strength = 255.0 * c[0]
    haze = plasma(np.asarray(draws["uniform"], dtype=np.float64), _map_size(height, width), c[1])
    levels = per_channel(strength * haze[:, :height, :width])
    levels += images.reshape(levels.shape)
    brightest = images.max(axis=(1, 2, 3)).astype(np.float64)[:, None, None]
    levels *= brightest / (brightest + strength)
    return to_pixels(levels).reshape(images.shape)


# ---- frost: part of a photograph of frost added to the image -------------------------------------


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
            "They come with fretta's extra 'frost'; in a clone: pip install '.[frost]'",
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


def frost_draw(rng: np.random.Generator, height: int, width: int, c: Constants) -> Draws:
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
