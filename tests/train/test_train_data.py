"""The batch of every step: which images, and how they are augmented."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fretta.errors import DataError
from fretta.experiment.train import TrainConfig
from fretta.experiment.train.data import (
    domain_transform,
    generator_for,
    make_batch,
    open_data,
    random_crop,
    random_cutout,
    random_flip,
    rows,
)


def pixels(n: int) -> Tensor:
    x = torch.randint(0, 256, (n, 3, 6, 6), generator=generator_for("pixels"))
    return x.to(torch.uint8)


def test_random_crop_and_flip() -> None:
    x = pixels(200)
    cropped, seen = random_crop(x[:50], 2, generator_for("crop")), set()
    assert cropped.dtype == torch.uint8
    for before, after in zip(x, cropped, strict=False):
        padded = F.pad(before, (2, 2, 2, 2))
        (shift,) = (
            (i, j)
            for i in range(5)
            for j in range(5)
            if torch.equal(padded[:, i : i + 6, j : j + 6], after)
        )
        seen.add(shift)
    assert {i for i, _ in seen} == {j for _, j in seen} == set(range(5))
    y = random_flip(x, generator_for("flip"))
    flipped = [torch.equal(b, a.flip(2)) for a, b in zip(x, y, strict=True)]
    same = [torch.equal(b, a) for a, b in zip(x, y, strict=True)]
    assert all(f != s for f, s in zip(flipped, same, strict=True))
    assert 70 < sum(flipped) < 130


def test_random_cutout() -> None:
    """A square wherever it may lie, cut off at the border, of the mean color."""
    x = torch.full((300, 3, 16, 12), 7, dtype=torch.uint8)
    y = random_cutout(x, 5, [255 * m for m in (0.5, 0.25, 0.0)], generator_for("cutout"))
    assert y.dtype == torch.uint8
    sides = Counter[int]()
    for image in y:
        changed = image[2] == 0
        rows, columns = changed.any(1), changed.any(0)
        assert torch.equal(changed, rows[:, None] & columns)
        assert image[:, changed].unique(dim=1).flatten().tolist() == [127, 63, 0]
        assert image[:, ~changed].unique().tolist() == [7]
        for within in (rows, columns):  # without a gap
            where = within.nonzero().flatten().tolist()
            assert where == list(range(where[0], where[0] + len(where)))
        sides += Counter((int(rows.sum()), int(columns.sum())))
    assert set(sides) == {3, 4, 5}
    assert bool((y == 0)[:, 2].any(0).all())  # every pixel of some image


@pytest.mark.parametrize(("height", "width"), [(40, 40), (30, 90), (1, 50)])
def test_images_of_any_size_become_one_size(height: int, width: int) -> None:
    y = domain_transform(32)(torch.randint(0, 256, (3, height, width), dtype=torch.uint8))
    assert (y.shape, y.dtype) == ((3, 32, 32), torch.uint8)


def test_a_batch_is_a_function_of_seed_and_step(left_out: TrainConfig, stripes: Path) -> None:
    config = left_out.resolved()
    domains = open_data(config)["train"].domains

    def batch(number: int, seed: int = 0) -> np.ndarray:
        made = make_batch(domains, replace(config, seed=seed), number)
        assert isinstance(made, tuple)
        assert made[0].shape == (16, 3, 24, 24)  # 8 of each of two domains
        return made[0]

    before = torch.get_rng_state()
    first = batch(2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    assert np.array_equal(batch(2), first)
    assert not np.array_equal(batch(3), first)
    assert not np.array_equal(batch(2, seed=1), first)
    for file in (stripes / "thin").rglob("*.png"):
        file.write_bytes(b"no image")
    assert isinstance(make_batch(domains, config, 2), DataError)  # raised by the main process


def test_every_pass_shows_every_image_once() -> None:
    shown = np.concatenate([rows(10, 4, step, "key") for step in range(10)])  # four passes
    passes = shown.reshape(4, 10)
    assert all(sorted(p.tolist()) == list(range(10)) for p in passes)
    assert all((a != b).any() for a, b in pairwise(passes))
    assert rows(3, 8, 0, "key").shape == (8,)  # a batch may be larger than the domain
