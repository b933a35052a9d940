"""What `corrupt` promises: independence of the batch, any size, seeds, severities, clear errors."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from corruption_pictures import make_pictures

from fretta.corruptions import ALL, blur, constants_for, corrupt, weather
from fretta.errors import ConfigError, FrettaWarning, InputError, MissingExtraError

pytestmark = pytest.mark.filterwarnings("ignore:frost uses procedural:fretta.errors.FrettaWarning")
FIXED = {
    *("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"),
    *("gaussian_blur", "saturate"),
}


@pytest.mark.parametrize("name", ALL)
def test_result_does_not_depend_on_the_batch(name: str) -> None:
    images = make_pictures(100, 32, 32)  # more than one chunk
    together = corrupt(images, name, 4, seed=7)
    order = np.random.default_rng(0).permutation(100)
    shuffled = corrupt(images[order], name, 4, seed=7, indices=order)
    np.testing.assert_array_equal(shuffled, together[order])
    for place in (0, 57, 99):
        one = corrupt(images[place : place + 1], name, 4, seed=7, indices=[place])
        np.testing.assert_array_equal(one[0], together[place])


@pytest.mark.parametrize("name", ALL)
def test_any_size(name: str) -> None:
    for size in ((1, 1), (2, 5), (8, 8), (28, 28), (31, 90)):
        images = make_pictures(2, *size)
        before = images.copy()
        for constants in ("cifar", "imagenet", None):
            result = corrupt(images, name, 5, constants=constants)
            assert result.shape == images.shape
            assert result.dtype == np.uint8
        np.testing.assert_array_equal(images, before)


@pytest.mark.parametrize("name", ALL)
def test_severities_and_seeds(name: str) -> None:
    images = np.repeat(make_pictures(2, 32, 32), 2, axis=0)
    results = [corrupt(images, name, severity) for severity in (1, 2, 3, 4, 5)]
    assert all((result != images).any() for result in results)
    assert all((a != b).any() for a, b in pairwise(results))
    np.testing.assert_array_equal(results[-1], corrupt(images, name, 5, seed=0))
    other = corrupt(images, name, 5, seed=1)
    assert (results[-1] == other).all() == (name in FIXED)
    assert (results[-1][0] == results[-1][1]).all() == (name in FIXED)  # the same picture twice


def test_strided_and_torch_images() -> None:
    images = make_pictures(4, 32, 40)
    expected = corrupt(images, "glass_blur", 3)
    planes = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    np.testing.assert_array_equal(corrupt(planes.permute(0, 2, 3, 1), "glass_blur", 3), expected)
    every_other = corrupt(images[::2], "glass_blur", 3, indices=[0, 2])
    np.testing.assert_array_equal(every_other, expected[::2])
    assert corrupt(images[:0], "fog").shape == (0, 32, 40, 3)


def test_constants_follow_size_and_severity() -> None:
    assert constants_for("gaussian_noise", 5, 32, 32) == (0.10,)
    assert constants_for("gaussian_noise", 5, 8, 500) == (0.10,)  # the shorter side decides
    assert constants_for("gaussian_noise", 5, 224, 300) == (0.38,)
    assert constants_for("gaussian_noise", 5, 1000, 1000) == (0.38,)
    assert constants_for("gaussian_noise", 5, 128, 128) == pytest.approx(((0.10 + 0.38) / 2,))
    assert constants_for("defocus_blur", 5, 64, 64)[0] == pytest.approx(1.5 + 8.5 / 6)
    assert constants_for("fog", 2, 500, 500, "cifar") == (0.5, 3)
    assert constants_for("fog", 2, 10, 10, "imagenet") == (2, 2)
    assert constants_for("contrast", 2.5, 32, 32) == pytest.approx((0.45,))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((2, 32, 32, 3), dtype=np.float32), "float32"),
        (np.zeros((32, 32, 3), dtype=np.uint8), r"images\[None\]"),
        (np.zeros((2, 3, 32, 32), dtype=np.uint8), "channels last"),
        (np.zeros((2, 0, 32, 3), dtype=np.uint8), "no pixels"),
    ],
)
def test_wrong_images(images: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        corrupt(images, "fog")


def test_wrong_options() -> None:
    images = make_pictures(2, 8, 8)
    for severity in (0, 0.9, 5.1, -1, "5", None, True, float("nan")):
        with pytest.raises(ConfigError, match="severity"):
            corrupt(images, "fog", severity)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="gaussian_noise"):
        corrupt(images, "fogg")
    with pytest.raises(ConfigError, match="'cifar', 'imagenet' or None"):
        corrupt(images, "fog", constants="mnist")
    for indices in ([1], [1.5, 2.5], [[1, 2]], [-1, 0]):
        with pytest.raises(ConfigError, match="indices"):
            corrupt(images, "fog", indices=indices)


@pytest.fixture
def no_photographs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(weather, "photograph_folder", lambda: None)
    for cached in (weather.photographs, weather.scaled):
        cached.cache_clear()
    yield
    for cached in (weather.photographs, weather.scaled):
        cached.cache_clear()


@pytest.mark.usefixtures("no_photographs")
def test_frost_without_photographs_warns_once() -> None:
    images = make_pictures(6, 32, 32)
    with pytest.warns(FrettaWarning, match=r"fretta\[frost\]") as caught:
        first = corrupt(images, "frost", 5)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = corrupt(images, "frost", 5)
    np.testing.assert_array_equal(first, second)
    assert first.mean() > images.mean()


def test_nothing_optional_is_imported() -> None:
    """Importing the engine takes neither Pillow nor scipy, and never imagecorruptions."""
    code = (
        "import sys, numpy as np; from fretta.corruptions import corrupt\n"
        "corrupt(np.zeros((1, 8, 8, 3), np.uint8), 'fog')\n"
        "print([m for m in ('PIL', 'scipy', 'sklearn', 'imagecorruptions') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "package"),
    [("jpeg_compression", "PIL"), ("motion_blur", "scipy"), ("zoom_blur", "scipy")],
)
def test_a_missing_package_is_named(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = [module for module in sys.modules if module.partition(".")[0] == package]
    for module in {package, *present}:
        monkeypatch.setitem(sys.modules, module, None)
    blur.zoom_operator.cache_clear()
    blur.zooms.cache_clear()
    with pytest.raises(MissingExtraError, match=r"fretta\[data\]"):
        corrupt(make_pictures(1, 8, 8), name)
