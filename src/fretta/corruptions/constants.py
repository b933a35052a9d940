"""What each severity means: the benchmark's constants at 32 and 224 pixels, and in between.

Each table has one row per severity, 1 to 5. CIFAR rows hold up to 32 pixels (shorter side),
ImageNet rows from 224 pixels; between the two sizes every constant, lengths in pixels included,
moves linearly with the shorter side. Fractional severities move linearly between their neighbors.
"""

from __future__ import annotations

import numpy as np

from ..errors import ConfigError

Constants = tuple[float, ...]
Rows = tuple[Constants, ...]

SMALL, LARGE = 32, 224  # pixels of the shorter side the two sets of constants were made for


def _single(*values: float) -> Rows:
    return tuple((value,) for value in values)


def _times(pixels: float, *rows: Constants) -> Rows:
    return tuple(tuple(value * pixels for value in row) for row in rows)


CIFAR: dict[str, Rows] = {
    "gaussian_noise": _single(0.04, 0.06, 0.08, 0.09, 0.10),  # sigma
    "shot_noise": _single(500, 250, 100, 75, 50),  # photons at full brightness
    "impulse_noise": _single(0.01, 0.02, 0.03, 0.05, 0.07),  # share of values hit
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),  # radius, alias
    # sigma, largest shift, rounds
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),  # radius, sigma
    # end, step
    "zoom_blur": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    # mean, sigma, zoom, threshold, motion radius, motion sigma, weight of the image
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    # weight of the image, of the photograph, scale of the photograph
    "frost": ((1, 0.2, 0.2), (1, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),  # strength, decay
    "brightness": _single(0.05, 0.1, 0.15, 0.2, 0.3),  # added to the value of HSV
    "contrast": _single(0.75, 0.5, 0.4, 0.3, 0.15),  # factor around the mean
    # strength, smoothness and affine shift, in pixels
    "elastic_transform": _times(
        32,
        (0, 0, 0.08),
        (0.05, 0.2, 0.07),
        (0.08, 0.06, 0.06),
        (0.1, 0.04, 0.05),
        (0.1, 0.03, 0.03),
    ),
    "pixelate": _single(0.95, 0.9, 0.85, 0.75, 0.65),  # scale
    "jpeg_compression": _single(80, 65, 58, 50, 40),  # quality
    "speckle_noise": _single(0.06, 0.1, 0.12, 0.16, 0.2),  # sigma relative to the value
    "gaussian_blur": _single(0.4, 0.6, 0.7, 0.8, 1),  # sigma
    # mean, sigma, smoothness, threshold, strength (water) or smoothness (mud), 0 water 1 mud
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),  # factor, offset
}
ALL = tuple(CIFAR)
CORRUPTIONS, EXTRA = ALL[:15], ALL[15:]  # those of the benchmark, and its four held-out ones

IMAGENET: dict[str, Rows] = {
    "gaussian_noise": _single(0.08, 0.12, 0.18, 0.26, 0.38),
    "shot_noise": _single(60, 25, 12, 5, 3),
    "impulse_noise": _single(0.03, 0.06, 0.09, 0.17, 0.27),
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    "zoom_blur": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    "snow": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "frost": ((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
    "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    "brightness": _single(0.1, 0.2, 0.3, 0.4, 0.5),
    "contrast": _single(0.4, 0.3, 0.2, 0.1, 0.05),
    "elastic_transform": _times(  # 244, not 224: the benchmark's own number
        244,
        (2, 0.7, 0.1),
        (2, 0.08, 0.2),
        (0.05, 0.01, 0.02),
        (0.07, 0.01, 0.02),
        (0.12, 0.01, 0.02),
    ),
    "pixelate": _single(0.6, 0.5, 0.4, 0.3, 0.25),
    "jpeg_compression": _single(25, 18, 15, 10, 7),
    "speckle_noise": _single(0.15, 0.2, 0.35, 0.45, 0.6),
    "gaussian_blur": _single(1, 2, 3, 4, 6),
    "spatter": (
        (0.65, 0.3, 4, 0.69, 0.6, 0),
        (0.65, 0.3, 3, 0.68, 0.6, 0),
        (0.65, 0.3, 2, 0.68, 0.5, 0),
        (0.65, 0.3, 1, 0.65, 1.5, 1),
        (0.67, 0.4, 1, 0.65, 1.5, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
}


def _mix(low: Constants, high: Constants, share: float) -> Constants:
    """`low` at share 0, `high` at share 1; exact at both ends."""
    if share <= 0:
        return low
    if share >= 1:
        return high
    return tuple(a + (b - a) * share for a, b in zip(low, high, strict=True))


def _row(rows: Rows, severity: float) -> Constants:
    below = int(severity)
    return _mix(rows[below - 1], rows[min(below, 4)], severity - below)


def constants_for(
    name: str, severity: float, height: int, width: int, constants: str | None = None
) -> Constants:
    """The constants of one corruption for images of this size; `constants` forces one set."""
    if name not in ALL:
        raise ConfigError(f"unknown corruption {name!r}; known: {', '.join(ALL)}")
    number = isinstance(severity, int | float | np.integer | np.floating)
    if not number or isinstance(severity, bool) or not 1 <= severity <= 5:
        raise ConfigError(f"severity={severity!r}; a number from 1 to 5 is expected")
    severity = float(severity)  # numpy's would make numpy numbers of the constants
    cifar, imagenet = _row(CIFAR[name], severity), _row(IMAGENET[name], severity)
    if constants == "cifar":
        return cifar
    if constants == "imagenet":
        return imagenet
    if constants is not None:
        raise ConfigError(f"constants={constants!r}; 'cifar', 'imagenet' or None is expected")
    return _mix(cifar, imagenet, (min(height, width) - SMALL) / (LARGE - SMALL))
