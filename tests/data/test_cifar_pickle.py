"""CIFAR pickles: read what CIFAR writes, refuse everything else without running it."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fretta.data.cifar_pickle import read_batch, read_batches, read_classes
from fretta.errors import DataError

ZEROS = np.zeros((2, 3072), np.uint8)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("bytes_keys", [True, False])
def test_every_pickle_protocol(tmp_path: Path, protocol: int, bytes_keys: bool) -> None:
    data = np.random.RandomState(0).randint(0, 256, (3, 3072)).astype(np.uint8)
    key = (lambda k: k.encode()) if bytes_keys else str
    batch: dict[Any, Any] = {
        key("data"): np.asfortranarray(data) if protocol % 2 else data,
        key("fine_labels"): [np.int64(4), 5, 6],
        key("coarse_labels"): [0, 0, 0],
        key("filenames"): [b"a", "b", b"c"],
    }
    (tmp_path / "b").write_bytes(pickle.dumps(batch, protocol=protocol))
    images, labels = read_batch(tmp_path / "b")
    # 1024 red, then 1024 green, then 1024 blue values, row by row
    assert images[1, 2, 5].tolist() == data[1, [69, 1024 + 69, 2048 + 69]].tolist()
    assert (images.transpose(0, 3, 1, 2).reshape(3, -1) == data).all()
    assert (labels.tolist(), labels.dtype) == ([4, 5, 6], np.int64)


def test_numpy_1_names_and_big_endian_labels(tmp_path: Path) -> None:
    batch = {"data": ZEROS, "labels": np.array([1, 2], dtype=">i4")}
    content = pickle.dumps(batch, protocol=0)
    (tmp_path / "b").write_bytes(content.replace(b"numpy._core", b"numpy.core"))
    assert read_batch(tmp_path / "b")[1].tolist() == [1, 2]


class Runs:
    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


@pytest.mark.parametrize("function", [os.mkdir, eval, np.load])
def test_a_pickle_that_runs_something_is_refused(tmp_path: Path, function: Any) -> None:
    target = tmp_path / "made"
    argument = str(target) if function is not eval else f"__import__('os').mkdir({str(target)!r})"
    batch = {"data": ZEROS, "labels": [0, 1], "x": Runs(function, argument)}
    (tmp_path / "b").write_bytes(pickle.dumps(batch))
    with pytest.raises(DataError, match=rf"{function.__name__}, which no CIFAR file needs"):
        read_batch(tmp_path / "b")
    assert not target.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (["a list"], "a list"),
        ({"labels": [0]}, "'data' is NoneType"),
        ({"data": np.zeros((2, 3072), np.int64), "labels": [0, 1]}, "'data' is int64"),
        ({"data": np.zeros((2, 100), np.uint8), "labels": [0, 1]}, r"uint8 \(2, 100\)"),
        *(
            ({"data": ZEROS, "labels": labels}, "'labels' is not a list of 2")
            for labels in (None, [0], [0, "x"], [0, [1]], [0, -1])
        ),
        ({"data": np.array([object()])}, "cannot be read as a CIFAR batch"),
        ({"data": np.zeros(2, np.float32)}, "type 'f4'; only integers"),
    ],
)
def test_unexpected_content(tmp_path: Path, content: Any, message: str) -> None:
    (tmp_path / "b").write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=rf"{tmp_path / 'b'}.*{message}"):
        read_batch(tmp_path / "b")


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    content = pickle.dumps({"data": ZEROS, "labels": [0, 1]}, protocol=2)
    # 2·3072 bytes declared as 3·3072: numpy's own reader never sees them.
    declared = content.replace(b"K\x02M\x00\x0c\x86", b"K\x03M\x00\x0c\x86")
    assert declared != content
    parts = [content[:n] for n in (0, 1, 40, len(content) // 2, len(content) - 1)]
    for damaged in (*parts, declared, b"not a pickle at all"):
        (tmp_path / "b").write_bytes(damaged)
        with pytest.raises(DataError, match="cannot be read as a CIFAR batch"):
            read_batch(tmp_path / "b")
    with pytest.raises(DataError, match=r"no file .*gone"):
        read_batch(tmp_path / "gone")


def test_class_names(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(pickle.dumps({b"label_names": [b"cat", "dog"]}))
    assert read_classes(path) == ["cat", "dog"]
    path.write_bytes(pickle.dumps({"fine_label_names": ["x"], "label_names": ["y"]}))
    assert read_classes(path) == ["x"]
    path.write_bytes(pickle.dumps({b"num_vis": 3072}))
    with pytest.raises(DataError, match="no list of class names"):
        read_classes(path)


def test_batches_are_joined_in_order_and_read_only(cifar10: Path) -> None:
    folder = cifar10 / "cifar-10-batches-py"
    images, labels = read_batches((str(folder / "data_batch_1"), str(folder / "test_batch")))
    assert images.shape == (60, 32, 32, 3)
    assert images[25, 0, 0, 0] == labels[25] == 5
    with pytest.raises(ValueError, match="read-only"):
        images[0] = 1
