"""Every data set of the paper in its layout on disk, with a handful of images."""

from __future__ import annotations

import io
import pickle
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from suite_nets import tiny

from fretta.corruptions import CORRUPTIONS
from fretta.data.cifar import CIFAR10_CLASSES, CIFAR100_CLASSES
from fretta.data.domainsets import DOMAIN_SETS
from fretta.experiment.suite import CaseEntry, Suite
from fretta.models import Card, write_card
from fretta.models.cards import sha256


def _folders(base: Path, domains: Sequence[str], classes: Sequence[str], suffix: str) -> None:
    """One noise image per class: a plain one would have features without variance."""
    random = np.random.default_rng(0)
    for domain in domains:
        pixels = random.integers(0, 255, (16, 16, 3)).astype(np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "jpeg")
        for name in classes:
            folder = base / domain / name
            folder.mkdir(parents=True)
            (folder / f"1.{suffix}").write_bytes(buffer.getvalue())


def domain_set(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PACS, OfficeHome, VLCS or DomainNet with one image of each class in each domain."""
    facts = DOMAIN_SETS[name]
    classes = facts.classes or [f"class{i:03}" for i in range(facts.class_count)]
    _folders(root / facts.folders[0], facts.domains, classes, "jpg")
    for domain in facts.domains:
        monkeypatch.setitem(facts.counts, domain, len(classes))


def cifar(root: Path) -> None:
    """CIFAR-10 and 100, clean (pickles) and corrupted (arrays), an image of each class."""
    random = np.random.default_rng(0)
    kinds = (
        ("10", CIFAR10_CLASSES, "cifar-10-batches-py", "label_names", "labels"),
        ("100", CIFAR100_CLASSES, "cifar-100-python", "fine_label_names", "fine_labels"),
    )
    for count, classes, folder, names, labels in kinds:
        clean = root / folder
        clean.mkdir()
        meta = {names.encode(): [name.encode() for name in classes]}
        (clean / ("batches.meta" if count == "10" else "meta")).write_bytes(pickle.dumps(meta))
        pixels = random.integers(0, 255, (len(classes), 3072)).astype(np.uint8)
        batch = pickle.dumps({b"data": pixels, labels.encode(): list(range(len(classes)))})
        for file in ("test_batch", "data_batch_1") if count == "10" else ("test", "train"):
            (clean / file).write_bytes(batch)
        corrupted = root / f"CIFAR-{count}-C"
        corrupted.mkdir()
        images = random.integers(0, 255, (5 * len(classes), 32, 32, 3)).astype(np.uint8)
        np.save(corrupted / "labels.npy", np.tile(np.arange(len(classes)), 5))
        for corruption in CORRUPTIONS:
            np.save(corrupted / f"{corruption}.npy", images)


def imagenet(root: Path) -> None:
    """Clean validation images only: ImageNet-C is then made on the fly, on 1,000 files."""
    _folders(root / "imagenet", ["val"], [f"n{i:08}" for i in range(1000)], "JPEG")
    for name in ("resnet18-f37072fd", "resnet50-0676ba61", "vit_b_16-c867db91"):
        (root / f"{name}.pth").write_bytes(b"never opened before a run starts")


def source_model(path: Path, classes: int, size: int) -> None:
    """Weights of the stand-in network and their card."""
    torch.manual_seed(zlib.crc32(path.name.encode()))  # other weights, other runs
    save_file(tiny(classes).state_dict(), path)
    card = Card(
        model="suite_nets:tiny",
        num_classes=classes,
        classes=[],
        data={"name": "noise"},
        preprocessing={"mean": [0.5] * 3, "std": [0.5] * 3, "size": size},
        accuracy={},
        seed=0,
        sha256=sha256(path),
    )
    write_card(path, card)


def class_count(case: CaseEntry) -> int:
    name = str(case.data["name"])
    if name in DOMAIN_SETS:
        return DOMAIN_SETS[name].class_count
    return 100 if name.startswith("cifar100") else 10


def run_count(suite: Suite) -> int:
    return sum(len(case.protocol["seeds"]) for case in suite.cases) * len(suite.methods)
