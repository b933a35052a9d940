"""The corruptions once more, plainly: one image at a time, with the tools anyone would reach for.

The tests compare the batched engine with this pixel by pixel, and the benchmark measures against
it. Images are (H, W, 3) uint8 and are worked on as float64 in [0, 1]. Every function takes either a
generator, from which it draws as it goes, or `draws`, the random numbers the engine used.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image
from plain_blur import defocus_blur, gaussian_blur, glass_blur, motion_blur, zoom_blur
from plain_pixels import Array, Draws, scaled, truncate
from plain_weather import fog, frost, snow, spatter
from scipy import ndimage, special


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


PLAIN: dict[str, Callable[[Array, Any, Any, Draws], Array]] = {
    function.__name__: function
    for function in (
        gaussian_noise,
        shot_noise,
        impulse_noise,
        defocus_blur,
        glass_blur,
        motion_blur,
        zoom_blur,
        snow,
        frost,
        fog,
        brightness,
        contrast,
        elastic_transform,
        pixelate,
        jpeg_compression,
        speckle_noise,
        gaussian_blur,
        spatter,
        saturate,
    )
}


def plain(
    image: Array, name: str, c: Any, rng: np.random.Generator | None = None, draws: Draws = None
) -> Array:
    """One image through one corruption, with constants `c`."""
    return PLAIN[name](image, c, rng, draws)
