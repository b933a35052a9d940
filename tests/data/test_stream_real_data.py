"""The data in the shared folder, as their users have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fretta.corruptions import corrupt
from fretta.data import doctor, make_stream, open_dataset

pytestmark = pytest.mark.data


def test_pacs(shared: Path) -> None:
    opened = open_dataset("pacs", shared / "data", size=160, verify="error")
    counts = {"art_painting": 2048, "cartoon": 2344, "photo": 1670}
    assert {d.name: len(d) for d in opened.domains} == counts
    assert opened.missing == ("sketch",)
    assert opened.classes[0] == "dog"
    batches = list(make_stream(opened, "independent", batch_size=64, limit=100))
    assert [b.reset for b in batches] == [True, False] * 3
    assert batches[0].x.shape == (64, 3, 160, 160)
    report = doctor("pacs", shared / "data")
    assert report.ok, report.lines()
    assert [f.text.split(":")[0] for f in report.findings if f.level == "warn"] == ["sketch"]


def test_cifar10_and_its_corruptions_on_the_fly(shared: Path) -> None:
    clean = open_dataset("cifar10", shared / "data", verify="error")
    assert len(clean.domains[0]) == 10000
    assert np.bincount(clean.domains[0].labels).tolist() == [1000] * 10
    train = open_dataset("cifar10", shared / "data", split="train", verify="off")
    assert len(train.domains[0]) == 10000
    shifted = open_dataset("cifar10", shared / "data", corruption="contrast")
    stream = make_stream(shifted, "correlated", seed=1, batch_size=100, limit=200)
    for batch in stream:
        pixels = clean.domains[0].read(batch.index)
        expected = corrupt(pixels, "contrast", 5, indices=batch.index)
        assert (batch.x.numpy() == expected.transpose(0, 3, 1, 2)).all()


def test_imagenet_sample(shared: Path) -> None:
    folder = open_dataset("folder", shared / "data", path="imagenet-sample")
    assert len(folder.classes) == 1000
    assert folder.classes == sorted(folder.classes)
    assert folder.domains[0].labels.tolist() == list(range(1000))
    assert folder.domains[0].read([0, 999]).shape == (2, 224, 224, 3)
    shifted = open_dataset("imagenetc", shared / "data", domains=["contrast"], verify="error")
    assert len(shifted.domains[0]) == 1000
    # Severity 5 keeps a twentieth of the contrast around each channel's mean.
    before, after = (
        d.read([3])[0].std(axis=(0, 1)) for d in (folder.domains[0], shifted.domains[0])
    )
    assert (after < before / 10).all()
