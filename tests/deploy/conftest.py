"""A folder of small images, a tiny model, and runs over them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deploy_nets import NAMES, save_images, write_weights

from fretta.deploy import AdaptOptions


@pytest.fixture
def images(tmp_path: Path) -> Path:
    save_images(tmp_path / "images", 44)
    return tmp_path / "images"


@pytest.fixture
def plan(tmp_path: Path, images: Path) -> Callable[..., AdaptOptions]:
    """plan(**changes): eight images per batch, the tiny model."""
    weights = tmp_path / "tiny.safetensors"
    write_weights(weights)
    (tmp_path / "labels.txt").write_text("\n".join(NAMES) + "\n")

    def make(**changes: Any) -> AdaptOptions:
        values: dict[str, Any] = {
            "model": "deploy_nets:tiny",
            "weights": str(weights),
            "data": str(images),
            "out": tmp_path / "out",
            "method": "tent",
            "hyperparameters": {"lr": 0.01},
            "batch_size": 8,
            "size": 16,
            "mean": (0.5, 0.5, 0.5),
            "std": (0.25, 0.25, 0.25),
            "labels": tmp_path / "labels.txt",
            "device": "cpu",
            "statistics": 16,
        }
        return AdaptOptions(**{**values, **changes})

    return make
