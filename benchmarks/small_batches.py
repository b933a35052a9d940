"""Why batches of fewer than 16 images are warned of: accuracy against the batch size.

    python benchmarks/small_batches.py [--data FOLDER] [--images 64]

Digits of the package; with --data also CIFAR-10-C and PACS art_painting (weights/ of that folder).
Default settings, one continual pass, severity 5, beside the same images without any shift.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path

from torch import nn

import fretta
from fretta.data import Dataset, Preprocessing, make_stream, open_dataset

SIZES = (1, 2, 4, 8, 16, 32, 64)
METHODS: dict[str, dict[str, float]] = {"bn": {}, "bn alpha=0.25": {"alpha": 0.25}, "g-fret": {}}
Case = tuple[str, nn.Module, Preprocessing, Dataset]


def accuracy(case: Case, label: str, size: int, images: int) -> float:
    _, model, pre, data = case
    limit = images if len(data.domains) > 1 else 8 * images
    stream = make_stream(data, "continual", seed=0, batch_size=size, limit=limit)
    adapter = fretta.adapt(model, label.split()[0], **METHODS.get(label, {}))
    hits = sum(int(adapter(pre.apply(b.x)).argmax(1).eq(b.y).sum()) for b in stream)
    return 100 * hits / stream.samples


def cases(root: Path | None) -> Iterator[Case]:
    model, card = fretta.models.load_source("digits")
    pre = Preprocessing.from_json(card.preprocessing)
    yield "digits", model, pre, open_dataset("digits")
    if root is None:
        return
    model = fretta.models.load(
        "cifar:resnet20", weights=root / "weights/cifar10_resnet20.safetensors", num_classes=10
    )
    pre = Preprocessing()
    yield "CIFAR-10-C", model, pre, open_dataset("cifar10", root, corruption="all", severity=5)
    yield "CIFAR-10 clean", model, pre, open_dataset("cifar10", root)
    weights = root / "weights/pacs_art_painting_tf_efficientnet_lite0.safetensors"
    model = fretta.models.load("timm:tf_efficientnet_lite0", weights=weights, num_classes=7)
    pre = Preprocessing(size=160)
    yield "PACS art_painting", model, pre, open_dataset("pacs", root, size=160).only("art_painting")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=None, help="folder with CIFAR-10 and PACS")
    parser.add_argument(
        "--images", type=int, default=64, help="per domain; 8 times as many of a single one"
    )
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'':30}" + "".join(f"{size:>7}" for size in SIZES), flush=True)
    for case in cases(arguments.data):
        source = accuracy(case, "source", 64, arguments.images)
        print(f"{case[0]:22} source {source:7.1f}", flush=True)
        for label in METHODS:
            print(f"{label:>30}", end="")
            for size in SIZES:
                print(f"{accuracy(case, label, size, arguments.images):7.1f}", end="", flush=True)
            print()


if __name__ == "__main__":
    main()
