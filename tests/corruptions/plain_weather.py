"""Snow, frost, fog and spatter, one image at a time."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import plain_spatter
from PIL import Image
from plain_blur import middle_part, moved, zoomed
from plain_pixels import Array, Draws, scaled, truncate
from scipy import ndimage

from fretta.corruptions.weather import NAMES, photograph_folder


def snow(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    mean, sigma, zoom, threshold, radius, spread, weight = c
    height, width = image.shape[:2]
    if draws is None:
        normal, angle = rng.standard_normal((height, width)), rng.uniform(-135, -45)
    else:  # the engine draws the middle part only
        normal = np.zeros((height, width))
        normal[middle_part(height, zoom), middle_part(width, zoom)] = draws["normal"]
        angle = float(draws["angle"])
    layer = zoomed(mean + sigma * normal, zoom, height, width)
    layer[layer < threshold] = 0
    layer = np.rint(255 * moved(scaled(truncate(layer)), radius, spread, angle)) / 255
    x = scaled(image)
    gray = (x @ np.array([0.299, 0.587, 0.114]))[..., None]
    x = weight * x + (1 - weight) * np.maximum(x, 1.5 * gray + 0.5)
    return truncate(x + layer[..., None] + np.rot90(layer, 2)[..., None])


@cache
def photographs() -> list[Array]:
    folder = photograph_folder()
    assert folder is not None
    return [np.asarray(Image.open(folder / name).convert("RGB")) for name in NAMES]


def frost(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    number = rng.integers(5) if draws is None else int(draws["photograph"])
    corner = rng.random(2) if draws is None else draws["corner"]
    photograph = photographs()[number]
    if c[2] == 0.2:  # linear interpolation at a fifth of the size meets every fifth pixel's center
        photograph = photograph[2::5, 2::5]
    height, width = image.shape[:2]
    top = int(corner[0] * (photograph.shape[0] - height))
    left = int(corner[1] * (photograph.shape[1] - width))
    part = photograph[top : top + height, left : left + width]
    return truncate(c[0] * scaled(image) + c[1] * scaled(part))


def plasma(rng: Any, size: int, decay: float, uniform: Array | None) -> Array:
    """Midpoint displacement; every index wraps around."""
    heights = np.zeros((size, size))
    step, wibble, used = size, 100.0, 0

    def fill(rows: Array, columns: Array, near: list[tuple[int, int]]) -> None:
        nonlocal used
        rows, columns = rows[:, None], columns[None]
        mean = sum(heights[(rows + dr) % size, (columns + dc) % size] for dr, dc in near) / 4
        if uniform is None:
            noise = rng.uniform(-1, 1, mean.shape)
        else:
            noise = uniform[used : used + mean.size].reshape(mean.shape)
        used += mean.size
        heights[rows, columns] = mean + wibble**2 * noise

    while step >= 2:
        half = step // 2
        even, odd = np.arange(0, size, step), np.arange(half, size, step)
        cross = [(-half, 0), (half, 0), (0, -half), (0, half)]
        fill(odd, odd, [(-half, -half), (-half, half), (half, -half), (half, half)])
        fill(even, odd, cross)
        fill(odd, even, cross)
        step, wibble = half, wibble / decay
    heights -= heights.min()
    return heights / heights.max()


def fog(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    height, width = image.shape[:2]
    size = 2
    while size < max(height, width):
        size *= 2
    layer = plasma(rng, size, c[1], None if draws is None else draws["uniform"])
    x = scaled(image)
    brightest = x.max()
    x = x + c[0] * layer[:height, :width, None]
    return truncate(x * brightest / (brightest + c[0]))


def spatter(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    mean, sigma, smooth, threshold, strength, mud = c
    normal = rng.standard_normal(image.shape[:2]) if draws is None else draws["normal"]
    layer = ndimage.gaussian_filter(mean + sigma * normal, smooth, mode="nearest", truncate=4)
    x = scaled(image)
    if mud >= 0.5:
        cover = (layer > threshold).astype(float)
        cover = ndimage.gaussian_filter(cover, strength, mode="nearest", truncate=4)[..., None]
        cover[cover < 0.8] = 0
        return truncate((1 - cover) * x + cover * np.array([63, 42, 20]) / 255)
    layer[layer < threshold] = 0
    amount = plain_spatter.water(truncate(layer))[..., None]
    return truncate(x + strength * amount * np.array([175, 238, 238]) / 255)
