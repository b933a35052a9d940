"""Augmentation against plain loops and colors known by heart."""

from __future__ import annotations

import colorsys
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from fretta.experiment.train.augment import (
    color_jitter,
    generator_for,
    gray,
    random_crop,
    random_flip,
    random_gray,
    random_resized_crop,
    shift_hue,
)
from fretta.experiment.train.data import rows


def pixels(n: int = 4, height: int = 6, width: int = 6) -> Tensor:
    return torch.randint(0, 256, (n, 3, height, width), generator=generator_for("pixels")).to(
        torch.uint8
    )


def color(*rgb: float) -> Tensor:
    return torch.tensor(rgb, dtype=torch.float32).view(1, 3, 1, 1)


def test_generators_depend_on_the_key_alone() -> None:
    draws = [torch.rand(3, generator=generator_for(*k)).tolist() for k in ((1, 2), (1, 2), (12,))]
    assert draws[0] == draws[1] != draws[2]


def test_random_crop_is_a_shift_per_image() -> None:
    x = pixels(n=50)
    y = random_crop(x, 2, generator_for("crop"))
    assert y.dtype == torch.uint8
    seen = set()
    for before, after in zip(x, y, strict=True):
        padded = torch.zeros(3, 10, 10, dtype=torch.uint8)
        padded[:, 2:8, 2:8] = before
        found = [
            (i, j)
            for i in range(5)
            for j in range(5)
            if torch.equal(padded[:, i : i + 6, j : j + 6], after)
        ]
        assert len(found) == 1
        seen |= set(found)
    assert {i for i, _ in seen} == {j for _, j in seen} == set(range(5))


def test_random_flip_mirrors_about_half() -> None:
    x = pixels(n=200)
    y = random_flip(x, generator_for("flip"))
    flipped = [torch.equal(b, a.flip(2)) for a, b in zip(x, y, strict=True)]
    kept = [torch.equal(b, a) for a, b in zip(x, y, strict=True)]
    assert all(f != k for f, k in zip(flipped, kept, strict=True))
    assert 70 < sum(flipped) < 130


@pytest.mark.parametrize(("height", "width"), [(40, 40), (30, 90), (90, 30), (1, 50)])
def test_random_resized_crop_shows_a_part(height: int, width: int) -> None:
    """On an image whose color is its position, the corners of the result say what was cut."""
    across = torch.linspace(0, 255, width).expand(height, width)
    down = torch.linspace(0, 255, height)[:, None].expand(height, width)
    image = torch.stack([across, down, across * 0]).round().to(torch.uint8)
    random = generator_for("rrc")
    for _ in range(20):
        y = random_resized_crop(image, 32, random).float()
        assert y.shape == (3, 32, 32)
        share = (y[0].max() - y[0].min()) * (y[1].max() - y[1].min()) / 255**2
        if height == width:
            assert 0.6 < share <= 1  # pixels at the edge are averages: a little less than 0.7
        if height > 1:
            assert (y[1].diff(dim=0) >= 0).all()  # upright
        assert (y[0].diff(dim=1) >= 0).all()


def test_hue_of_known_colors() -> None:
    third, half = torch.tensor([1 / 3]), torch.tensor([0.5])
    assert torch.allclose(shift_hue(color(1, 0, 0), third), color(0, 1, 0), atol=1e-6)
    assert torch.allclose(shift_hue(color(0, 1, 0), third), color(0, 0, 1), atol=1e-6)
    assert torch.allclose(shift_hue(color(1, 0, 0), half), color(0, 1, 1), atol=1e-6)
    assert torch.allclose(shift_hue(color(0.4, 0.4, 0.4), half), color(0.4, 0.4, 0.4))


def test_hue_against_colorsys() -> None:
    x = pixels(n=1, height=5, width=5).float() / 255
    y = shift_hue(x, torch.tensor([0.21]))
    for row in range(5):
        for column in range(5):
            h, s, v = colorsys.rgb_to_hsv(*x[0, :, row, column].tolist())
            expected = colorsys.hsv_to_rgb((h + 0.21) % 1, s, v)
            assert y[0, :, row, column].tolist() == pytest.approx(expected, abs=1e-5)


def test_gray_and_jitter() -> None:
    assert gray(color(1, 0, 0)).item() == pytest.approx(0.299)
    x = pixels().float() / 255
    assert torch.allclose(color_jitter(x, 0.0, generator_for(0)), x, atol=1e-5)
    y = color_jitter(x, 0.3, generator_for(0))
    assert 0 <= y.min() < y.max() <= 1
    assert (y - x).abs().amax(dim=(1, 2, 3)).min() > 0.01  # each image changed
    many = torch.rand((400, 3, 2, 2), generator=generator_for("many"))
    z = random_gray(many, 0.1, generator_for(1))
    plain = (z[:, 0] == z[:, 1]).all(dim=(1, 2)) & (z[:, 1] == z[:, 2]).all(dim=(1, 2))
    assert 20 < int(plain.sum()) < 65
    assert torch.equal(z[~plain], many[~plain])


def test_jitter_keeps_a_gray_image_gray() -> None:
    x = torch.rand((3, 1, 4, 4), generator=generator_for("g")).expand(3, 3, 4, 4)
    y = color_jitter(x, 0.3, generator_for(3))
    assert torch.allclose(y[:, 0], y[:, 1], atol=1e-5)
    assert torch.allclose(y[:, 0], y[:, 2], atol=1e-5)


def test_every_pass_shows_every_image_once() -> None:
    shown = np.concatenate([rows(10, 4, step, "key") for step in range(10)])  # four passes
    passes = shown.reshape(4, 10)
    assert all(sorted(p.tolist()) == list(range(10)) for p in passes)
    assert all((a != b).any() for a, b in pairwise(passes))
    assert rows(3, 8, 0, "key").shape == (8,)  # a batch may be larger than the domain
