"""Two small runs: one on digits, one that leaves a domain out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from train_nets import NETS

from fretta.experiment.train import TrainConfig


@pytest.fixture
def small(tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        data="digits",
        out=tmp_path / "m.safetensors",
        model=f"{NETS}:dropout_net",
        epochs=5,
        limit=96,
        batch_size=16,
        checkpoint_every=10,
    )


@pytest.fixture
def stripes(tmp_path: Path) -> Path:
    """Three domains (line widths) of two classes (directions), images of several sizes."""
    from PIL import Image

    random = np.random.default_rng(0)
    root = tmp_path / "stripes"
    for domain, period in (("thin", 6), ("wide", 10), ("coarse", 14)):
        for name in ("across", "down"):
            folder = root / domain / name
            folder.mkdir(parents=True)
            for i in range(10):
                size = (int(random.integers(24, 48)), int(random.integers(24, 48)))
                row, column = np.indices(size)
                wave = (row if name == "across" else column) + random.integers(0, period)
                gray = 80 + 120 * (wave % period < period // 2) + random.integers(-20, 20, size)
                image = np.repeat(gray.clip(0, 255).astype(np.uint8)[..., None], 3, axis=2)
                Image.fromarray(image).save(folder / f"{i}.png")
    return root


@pytest.fixture
def left_out(stripes: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        data="folder",
        root=stripes,
        out=tmp_path / "s.safetensors",
        target="coarse",
        model=f"{NETS}:dropout_net",
        iterations=40,
        batch_size=8,
        lr=1e-2,
        size=24,
        evaluate_every=10,
        checkpoint_every=15,
    )
