"""Small data sets in the layouts users have, made in a temporary folder."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fretta.corruptions import CORRUPTIONS
from fretta.data.cifar import CIFAR10_CLASSES
from fretta.data.domainsets import PACS_CLASSES

Tree = Callable[[Path, Mapping[str, Mapping[str, int]]], Path]


def write_image(path: Path, color: tuple[int, int, int], size: tuple[int, int] = (24, 18)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)


@pytest.fixture
def tree() -> Tree:
    """tree(root, {domain: {class: count}}): one plain color per image, domain and class known."""

    def make(root: Path, content: Mapping[str, Mapping[str, int]]) -> Path:
        for d, (domain, classes) in enumerate(content.items()):
            for c, (name, count) in enumerate(classes.items()):
                (root / domain / name).mkdir(parents=True, exist_ok=True)
                for i in range(count):
                    write_image(root / domain / name / f"{i:03}.png", (40 * d, 20 * c, i))
        return root

    return make


@pytest.fixture
def pacs(tmp_path: Path, tree: Tree) -> Path:
    """Two of the four domains, two images per class."""
    classes = dict.fromkeys(PACS_CLASSES, 2)
    tree(tmp_path / "PACS", {"photo": classes, "cartoon": classes})
    return tmp_path


def cifar_pixels(count: int) -> np.ndarray:
    """Image i is filled with the value i (mod 256), so that reading it back tells which it is."""
    return np.repeat(np.arange(count, dtype=np.uint8)[:, None], 3072, axis=1)


@pytest.fixture
def cifar10(tmp_path: Path) -> Path:
    """A CIFAR-10 folder with 40 test and 20 training images."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    meta = {b"label_names": [name.encode() for name in CIFAR10_CLASSES]}
    (folder / "batches.meta").write_bytes(pickle.dumps(meta))
    for name, count in (("test_batch", 40), ("data_batch_1", 20)):
        batch = {b"data": cifar_pixels(count), b"labels": [i % 10 for i in range(count)]}
        (folder / name).write_bytes(pickle.dumps(batch))
    return tmp_path


@pytest.fixture
def cifar10c(tmp_path: Path) -> Path:
    """A CIFAR-10-C folder with 20 images per severity: pixel = 40·severity + image number."""
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile(np.arange(20) % 10, 5))
    values = 40 * np.repeat(np.arange(1, 6), 20) + np.tile(np.arange(20), 5)
    images = np.broadcast_to(values[:, None, None, None], (100, 32, 32, 3)).astype(np.uint8)
    for corruption in CORRUPTIONS:
        np.save(folder / f"{corruption}.npy", images)
    return tmp_path
