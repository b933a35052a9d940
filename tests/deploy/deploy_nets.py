"""Small images, and a network small enough for hundreds of runs: `deploy_nets:tiny`."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from fretta.deploy import AdaptOptions, AdaptResult, adapt_images

# for processes that import this module
_PATHS = (str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, _PATHS))}
NAMES = ("ant", "bee", "cat", "dog")
FILES = ("predictions.csv", "health.jsonl", "adapted.safetensors")


def content(out: Path) -> list[bytes]:
    """What must be the same byte for byte."""
    return [(out / name).read_bytes() for name in FILES]


def table(out: Path) -> list[dict[str, str]]:
    with (out / "predictions.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def stop_after(batches: int, options: AdaptOptions, **more: Any) -> AdaptResult:
    """A run that is stopped as Ctrl-C does it."""
    done: list[int] = []
    return adapt_images(
        options, on_batch=lambda c: done.append(1), stopped=lambda: len(done) >= batches, **more
    )


def save_images(folder: Path, count: int, side: int = 16) -> list[Path]:
    """`count` images in the folder, each different."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.RandomState(count)
    paths = [folder / f"{number:03d}.png" for number in range(count)]
    for path in paths:
        base = random.randint(0, 200, (1, 1, 3))
        pixels = (base + random.randint(0, 56, (side, side, 3))).astype(np.uint8)
        Image.fromarray(pixels).save(path)
    return paths


def tiny(num_classes: int = 4, channels: int = 3) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(channels, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, num_classes)),
    )


class Named(nn.Sequential):
    """The same network; the logits are part of what it returns."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"out": super().forward(x), "loss": x.mean()}


def named() -> nn.Module:
    return Named(*tiny())


def gray() -> nn.Module:
    return tiny(channels=1)


def write_weights(path: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = tiny()
        for layer in net.modules():
            if isinstance(layer, nn.BatchNorm2d):
                nn.init.uniform_(layer.weight, 0.5, 1.5)
                layer.running_mean.uniform_(-0.3, 0.3)  # type: ignore[operator, union-attr]
    save_file(net.state_dict(), path)
