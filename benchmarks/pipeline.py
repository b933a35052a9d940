"""Throughput of the whole way: decode, corrupt, normalize, adapt; with decoding ahead and without.

    python benchmarks/pipeline.py [--images 512] [--method tent] [--workers 0 1 2]

Writes JPEG images into a temporary folder, corrupts them as they are read, and adapts a ResNet-20
at 64 px. Rounds take turns. Loading is the time the model waits for images; CPU is
what this process and its workers used of all cores.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import arguments, write
from PIL import Image

from fretta.data import Preprocessing
from fretta.experiment.case import open_case
from fretta.experiment.loop import stream_through

SIDE = 64  # of what the network sees


def write_images(folder: Path, count: int, side: int) -> None:
    noise = np.random.default_rng(0)
    for number in range(count):
        path = folder / "photo" / f"class{number % 10}" / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        small = noise.integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8)
        Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC).save(path)


def cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def one(folder: Path, method: str, workers: int) -> dict[str, Any]:
    case = open_case(
        "cifar:resnet20",
        {"name": "folder", "size": SIDE, "corruption": "gaussian_noise", "severity": 3},
        num_classes=10,
        untrained=True,
        preprocessing=Preprocessing(size=SIDE, mean=(0.5,) * 3, std=(0.25,) * 3),
        root=folder,
        device="cpu",
    )
    adapters = {method: case.adapter(method)}
    stream = case.stream("mixed", batch_size=64, workers=workers)
    begin, busy = time.perf_counter(), cpu_seconds()
    adapting = loading = 0.0
    images = 0
    for item, steps in stream_through(adapters, case.items(stream)):
        adapting += steps[method].seconds
        loading += item.loading
        images += len(item.x)
    wall = time.perf_counter() - begin
    return {
        "workers": workers,
        "images_per_second": images / wall,
        "adapting_share": adapting / wall,
        "loading_share": loading / wall,
        "cpu": (cpu_seconds() - busy) / wall / (os.cpu_count() or 1),
    }


def main() -> None:
    parser = arguments(__doc__, images=512, side=256, method="tent", rounds=5)
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 1])
    options = parser.parse_args()
    torch.set_num_threads(1)
    rounds: dict[int, list[dict[str, Any]]] = {w: [] for w in options.workers}
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), options.images, options.side)
        for _ in range(options.rounds):
            for workers in options.workers:
                rounds[workers].append(one(Path(folder), options.method, workers))
    result = [
        {key: round(statistics.median(r[key] for r in found), 3) for key in found[0]}
        for found in rounds.values()
    ]
    print(json.dumps(result, indent=1))
    write(options.out, {"images": options.images, "side": options.side, "workers": result})


if __name__ == "__main__":
    main()
