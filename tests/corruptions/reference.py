"""The corruptions once more, plainly: one image at a time, with the tools anyone would reach for.

The tests compare the batched engine with this pixel by pixel, and the benchmark measures against
it. Images are (H, W, 3) uint8 and are worked on as float64 in [0, 1]. Every function takes either a
generator, from which it draws as it goes, or `draws`, the random numbers the engine used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image
from scipy import ndimage, signal, special

from fretta.corruptions.base import GUARD
from fretta.corruptions.weather import NAMES, photograph_folder

Array = np.ndarray[Any, np.dtype[Any]]
Draws = dict[str, Array] | None


def truncate(x: Array) -> Array:
    return np.clip(x * 255.0 + GUARD, 0, 255).astype(np.uint8)


def scaled(image: Array) -> Array:
    return image / 255.0


# ---- noise, color, digital ----------------------------------------------------------------------


def gaussian_noise(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    normal = rng.standard_normal(image.shape) if draws is None else draws["normal"].astype(float)
    return truncate(scaled(image) + c[0] * normal)


def speckle_noise(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    normal = rng.standard_normal(image.shape) if draws is None else draws["normal"].astype(float)
    return truncate(scaled(image) * (1 + c[0] * normal))


def shot_noise(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    if draws is None:
        return truncate(rng.poisson(scaled(image) * c[0]) / c[0])
    counts = np.zeros(image.shape)
    for level in np.unique(
        image
    ).tolist():  # the smallest count whose distribution exceeds u / 2^16
        ends = np.rint(special.pdtr(np.arange(2000), c[0] * level / 255.0) * 65536)
        here = image == level
        counts[here] = np.searchsorted(ends, draws["uniform"][here], side="right")
    return truncate(counts / c[0])


def impulse_noise(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    if draws is None:
        hit, salt = rng.random(image.shape) < c[0], rng.random(image.shape) < 0.5
    else:
        hit, salt = draws["uniform"] / 2.0**32 < c[0], draws["uniform"] % 2 == 1
    result = image.copy()
    result[hit & salt] = 255
    result[hit & ~salt] = 0
    return result


def to_hsv(x: Array) -> tuple[Array, Array, Array]:
    value, spread = x.max(axis=-1), np.ptp(x, axis=-1)
    safe = np.where(spread == 0, 1, spread)
    red, green, blue = x[..., 0], x[..., 1], x[..., 2]
    hue = np.where(
        value == red,
        (green - blue) / safe % 6,
        np.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    hue = np.where(spread == 0, 0, hue)
    return hue, np.where(value == 0, 0, spread / np.where(value == 0, 1, value)), value


def to_rgb(hue: Array, saturation: Array, value: Array) -> Array:
    channels = []
    for shift in (5, 3, 1):  # red, green, blue
        k = (shift + hue) % 6
        ramp = np.clip(np.minimum(k, 4 - k), 0, 1)
        channels.append(value - value * saturation * ramp)
    return np.stack(channels, axis=-1)


def brightness(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    hue, saturation, value = to_hsv(scaled(image))
    return truncate(to_rgb(hue, saturation, np.clip(value + c[0], 0, 1)))


def saturate(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    hue, saturation, value = to_hsv(scaled(image))
    return truncate(to_rgb(hue, np.clip(saturation * c[0] + c[1], 0, 1), value))


def contrast(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    x = scaled(image)
    mean = x.mean(axis=(0, 1), keepdims=True)
    return truncate((x - mean) * c[0] + mean)


def elastic_transform(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    strength, smooth, shift = c
    height, width = image.shape[:2]
    points = rng.uniform(-1, 1, (3, 2)) if draws is None else draws["points"]
    side = min(height, width) // 3
    middle = np.array([width // 2, height // 2], dtype=float)
    fixed = middle + side * np.array([[1, 1], [1, -1], [-1, -1]])
    moved_points = np.hstack([fixed + shift * points, np.ones((3, 1))])
    to_x, to_y = np.linalg.solve(moved_points, fixed).T  # result (x, y, 1) -> source x, y
    matrix = np.array([[to_y[1], to_y[0]], [to_x[1], to_x[0]]])  # in (row, column)
    offset = np.array([to_y[2], to_x[2]])
    x = scaled(image)
    channels = [
        ndimage.affine_transform(x[..., k], matrix, offset, order=1, mode="mirror")
        for k in range(3)
    ]
    if strength > 0:
        field = rng.uniform(-1, 1, (2, height, width)) if draws is None else draws["field"]
        dx, dy = (
            strength * ndimage.gaussian_filter(part, smooth, mode="reflect", truncate=3)
            for part in field
        )
        rows, columns = np.mgrid[:height, :width]
        where = np.stack([rows + dy, columns + dx])
        channels = [
            ndimage.map_coordinates(channel, where, order=1, mode="reflect") for channel in channels
        ]
    return truncate(np.stack(channels, axis=-1))


def pixelate(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    height, width = image.shape[:2]
    small = Image.fromarray(image).resize(
        (int(width * c[0]), int(height * c[0])), Image.Resampling.BOX
    )
    return np.asarray(small.resize((width, height), Image.Resampling.BOX))


def jpeg_compression(image: Array, c: Any, rng: Any, draws: Draws) -> Array:
    file = BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=round(c[0]))
    return np.asarray(Image.open(file))


# ---- blur ----------------------------------------------------------------------------------------


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


# ---- weather -------------------------------------------------------------------------------------


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
    amount = water(truncate(layer))[..., None]
    return truncate(x + strength * amount * np.array([175, 238, 238]) / 255)


# ---- water drops: Canny's edges, distances, equalization, embossing ------------------------------


def canny(layer: Array, low: int = 50, high: int = 150) -> Array:
    height, width = layer.shape
    whole = layer.astype(int)
    gx = ndimage.correlate(whole, np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]), mode="nearest")
    gy = ndimage.correlate(whole, np.array([[-1, -2, -1], [0, 0, 0], [1, 2, 1]]), mode="nearest")
    size = np.pad(abs(gx) + abs(gy), 1)
    ridge = np.zeros(layer.shape, dtype=bool)
    for row in range(height):
        for column in range(width):
            i, j = row + 1, column + 1
            here, x, y = size[i, j], gx[row, column], gy[row, column]
            if here <= low:
                continue
            slope = abs(y) / abs(x) if x else np.inf
            if slope < np.tan(np.pi / 8):
                keep = here > size[i, j - 1] and here >= size[i, j + 1]
            elif slope > np.tan(3 * np.pi / 8):
                keep = here > size[i - 1, j] and here >= size[i + 1, j]
            else:
                side = -1 if (x < 0) != (y < 0) else 1
                keep = here > size[i - 1, j - side] and here > size[i + 1, j + side]
            ridge[row, column] = keep
    # A ridge counts if the connected ridge it belongs to is strong somewhere.
    labels, _ = ndimage.label(ridge, structure=np.ones((3, 3)))
    strong = np.unique(labels[ridge & (size[1:-1, 1:-1] > high)])
    return np.isin(labels, strong) & ridge


def chamfer(edge: Array, far: float = 20.0) -> Array:
    """Two passes, each pixel looking at the neighbors that were visited before it."""
    height, width = edge.shape
    padded = np.full((height + 4, width + 4), far)
    padded[2:-2, 2:-2][edge] = 0
    steps = [((0, -1), 1.0), ((-1, 0), 1.0), ((-1, -1), 1.4), ((-1, 1), 1.4)]
    steps += [((-1, -2), 2.1969), ((-2, -1), 2.1969), ((-2, 1), 2.1969), ((-1, 2), 2.1969)]
    for sign in (1, -1):
        for row in range(2, height + 2)[::sign]:
            for column in range(2, width + 2)[::sign]:
                for (down, right), cost in steps:
                    other = padded[row + sign * down, column + sign * right] + cost
                    padded[row, column] = min(padded[row, column], other)
    return padded[2:-2, 2:-2]


def equalized(values: Array) -> Array:
    flat = np.sort(values.ravel())
    lowest = np.count_nonzero(flat == flat[0])
    if lowest == flat.size:
        return values
    table = {
        int(v): np.rint((np.count_nonzero(flat <= v) - lowest) * 255.0 / (flat.size - lowest))
        for v in np.unique(flat)
    }
    return np.vectorize(table.__getitem__)(values)


def water(drops: Array) -> Array:
    depth = ndimage.correlate(chamfer(canny(drops)), np.full((3, 3), 1 / 9), mode="mirror")
    levels = equalized((depth + 1.37e-4).astype(int))
    emboss = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    levels = np.clip(ndimage.correlate(levels.astype(int), emboss, mode="mirror"), 0, 255)
    levels = np.rint(ndimage.correlate(levels, np.ones((3, 3), int), mode="mirror") / 9)
    amount = drops * levels
    return amount / amount.max() if amount.max() > 0 else amount


PLAIN: dict[str, Callable[[Array, Any, Any, Draws], Array]] = {
    function.__name__: function
    for function in (
        *(gaussian_noise, shot_noise, impulse_noise, defocus_blur, glass_blur, motion_blur),
        *(zoom_blur, snow, frost, fog, brightness, contrast, elastic_transform, pixelate),
        *(jpeg_compression, speckle_noise, gaussian_blur, spatter, saturate),
    )
}


def plain(
    image: Array, name: str, c: Any, rng: np.random.Generator | None = None, draws: Draws = None
) -> Array:
    """One image through one corruption, with constants `c`."""
    return PLAIN[name](image, c, rng, draws)
