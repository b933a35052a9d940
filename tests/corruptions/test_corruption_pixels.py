"""The batched engine against the plain version: every pixel, with the same random numbers."""

from __future__ import annotations

import numpy as np
import pytest
from corruption_pictures import make_pictures
from reference import plain

from fretta.corruptions import ALL, constants_for, corrupt
from fretta.corruptions.base import ImageRandom
from fretta.corruptions.engine import draws_for
from fretta.corruptions.weather import photograph_folder
from nets import grid

SIZES = {
    "cifar": (32, 32, "cifar"),
    "wide": (37, 50, "cifar"),
    "imagenet": (70, 90, "imagenet"),
    "between": (96, 80, None),
}


def both(name: str, severity: float, images: np.ndarray, constants: str | None) -> tuple:
    """(batched, plain) results of the same images with the same random numbers."""
    height, width = images.shape[1:3]
    c = constants_for(name, severity, height, width, constants)
    indices = list(range(len(images)))
    draws = draws_for(name, c, height, width, ImageRandom(3, name, severity), indices)
    expected = [
        plain(image, name, c, draws={key: rows[k] for key, rows in draws.items()})
        for k, image in enumerate(images)
    ]
    return corrupt(images, name, severity, seed=3, constants=constants), np.stack(expected)


@pytest.mark.parametrize("size", grid(SIZES, {"cifar", "between"}.__contains__))
@pytest.mark.parametrize("name", ALL)
def test_equals_the_plain_version(name: str, size: str) -> None:
    height, width, constants = SIZES[size]
    if name == "frost":
        if photograph_folder() is None:
            pytest.skip("the photographs of frost are not installed")
        if constants is None:
            constants = "imagenet"  # the plain version knows the two original scales only
    images = make_pictures(2, height, width)
    for severity in (1, 2, 3, 4, 5):
        batched, expected = both(name, severity, images, constants)
        np.testing.assert_array_equal(batched, expected, f"{name} {severity}")


@pytest.mark.parametrize("name", sorted(set(ALL) - {"frost"}))
def test_equals_the_plain_version_on_flat_images(name: str) -> None:
    """Whole numbers must survive: black, white, one gray, one color, and all 256 levels."""
    images = np.zeros((5, 32, 32, 3), dtype=np.uint8)
    images[1] = 255
    images[2] = 101
    images[3] = (200, 30, 77)
    images[4] = np.arange(1024).reshape(32, 32, 1) % 256
    for severity in (2, 5):
        batched, expected = both(name, severity, images, None)
        np.testing.assert_array_equal(batched, expected)
        if "blur" in name:
            np.testing.assert_array_equal(batched[:4], images[:4])


def test_poisson_table_has_the_right_moments() -> None:
    """Mean and variance over all 65536 equally likely draws, where nothing is clipped."""
    from fretta.corruptions.noise import poisson_table

    photons = 50.0
    table = poisson_table(photons).reshape(256, 65536)
    for level in (20, 60, 110):
        mean = photons * level / 255
        counts = np.rint((table[level] + 0.5) * photons / 255 - 0.05)  # undo the truncation
        assert counts.mean() == pytest.approx(mean, rel=2e-3)
        assert counts.var() == pytest.approx(mean, rel=5e-3)


def test_glass_chains_are_followed() -> None:
    """A row of copies that each read their right neighbor carries one value all the way left."""
    from fretta.corruptions.blur import copy_sources

    delta, size = 2, 9
    offset = np.zeros((1, 2, size - 2 * delta, size - 2 * delta), dtype=np.int8)
    offset[:, 1] = 1
    source = copy_sources(offset, size, size, delta)[0]
    for row in range(size):
        for column in range(size):
            inside = delta < row <= size - delta and delta < column <= size - delta
            expected = row * size + (size - delta + 1 if inside else column)
            assert source[row, column] == expected
