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
def test_every_corruption(name: str) -> None:
    images = make_pictures(100, 32, 32)  # more than one chunk
    together = corrupt(images, name, 4, seed=7)
    order = np.random.default_rng(0).permutation(100)  # the batch does not matter
    shuffled = corrupt(images[order], name, 4, seed=7, indices=order)
    np.testing.assert_array_equal(shuffled, together[order])
    one = corrupt(images[57:58], name, 4, seed=7, indices=[57])
    np.testing.assert_array_equal(one[0], together[57])
    twins = np.repeat(images[:2], 2, axis=0)
    results = [corrupt(twins, name, severity) for severity in (1, 2, 3, 4, 5)]
    assert all((result != twins).any() for result in results)
    assert all((a != b).any() for a, b in pairwise(results))
    assert (results[-1] == corrupt(twins, name, 5, seed=1)).all() == (name in FIXED)
    assert (results[-1][0] == results[-1][1]).all() == (name in FIXED)
    for size in ((1, 1), (2, 5), (8, 8), (28, 28), (31, 90)):
        images = make_pictures(2, *size)
        before = images.copy()
        for constants in ("cifar", "imagenet", None):
            result = corrupt(images, name, 5, constants=constants)
            assert (result.shape, result.dtype) == (images.shape, np.uint8)
        np.testing.assert_array_equal(images, before)


def test_strided_and_torch_images() -> None:
    images = make_pictures(4, 32, 40)
    expected = corrupt(images, "glass_blur", 3)
    planes = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    np.testing.assert_array_equal(corrupt(planes.permute(0, 2, 3, 1), "glass_blur", 3), expected)
    every_other = corrupt(images[::2], "glass_blur", 3, indices=[0, 2])
    np.testing.assert_array_equal(every_other, expected[::2])
    assert corrupt(images[:0], "fog").shape == (0, 32, 40, 3)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (("gaussian_noise", 5, 32, 32), (0.10,)),
        (("gaussian_noise", 5, 8, 500), (0.10,)),  # the shorter side decides
        (("gaussian_noise", 5, 224, 300), (0.38,)),
        (("gaussian_noise", 5, 128, 128), ((0.10 + 0.38) / 2,)),
        (("fog", 2, 500, 500, "cifar"), (0.5, 3)),
        (("fog", 2, 10, 10, "imagenet"), (2, 2)),
        (("contrast", 2.5, 32, 32), (0.45,)),
    ],
)
def test_constants_follow_size_and_severity(request_: Any, expected: Any) -> None:
    assert constants_for(*request_) == pytest.approx(expected)


def test_wrong_images_and_options() -> None:
    for images, message in (
        (np.zeros((2, 32, 32, 3), dtype=np.float32), "float32"),
        (np.zeros((32, 32, 3), dtype=np.uint8), r"images\[None\]"),
        (np.zeros((2, 3, 32, 32), dtype=np.uint8), "channels last"),
        (np.zeros((2, 0, 32, 3), dtype=np.uint8), "no pixels"),
    ):
        with pytest.raises(InputError, match=message):
            corrupt(images, "fog")
    wrong: list[tuple[str, Any]] = [("name", "fogg"), ("constants", "mnist")]
    wrong += [("severity", s) for s in (0, 0.9, 5.1, "5", None, True, float("nan"))]
    wrong += [("indices", i) for i in ([1], [1.5, 2.5], [[1, 2]], [-1, 0])]
    for option, value in wrong:
        with pytest.raises(ConfigError, match="unknown corruption" if option == "name" else option):
            corrupt(make_pictures(2, 8, 8), **{"name": "fog", option: value})


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
    with pytest.warns(FrettaWarning, match=r"extra 'frost'") as caught:
        first = corrupt(images, "frost", 5)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = corrupt(images, "frost", 5)
    np.testing.assert_array_equal(first, second)
    assert first.mean() > images.mean()


def test_nothing_optional_is_imported() -> None:
    code = (
        "import sys, numpy as np; from fretta.corruptions import corrupt\n"
        "corrupt(np.zeros((1, 8, 8, 3), np.uint8), 'fog'); import fretta.data\n"
        "print([m for m in ('PIL', 'scipy', 'sklearn', 'torchvision', 'imagecorruptions')"
        " if m in sys.modules])"
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
    with pytest.raises(MissingExtraError, match=r"extra 'data'"):
        corrupt(make_pictures(1, 8, 8), name)
