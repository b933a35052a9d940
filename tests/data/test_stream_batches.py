"""Streams: what batches carry, skipping, index files, resuming."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fretta.data import Stream, load_stream, make_stream, open_dataset
from fretta.errors import ConfigError, DataError, FrettaWarning

Tree = Callable[..., Path]


@pytest.fixture
def shifted(cifar10c: Path) -> Stream:
    dataset = open_dataset("cifar10c", cifar10c, domains=["fog", "snow"], verify="off")
    return make_stream(dataset, "independent", seed=3, batch_size=8)


def test_batches(shifted: Stream) -> None:
    batches = list(shifted)
    assert len(shifted) == len(batches) == 6
    assert [len(b) for b in batches] == [8, 8, 4, 8, 8, 4]
    assert [b.domain for b in batches] == ["fog"] * 3 + ["snow"] * 3
    assert [b.reset for b in batches] == [True, False, False] * 2
    for number, b in enumerate(batches):
        assert b.number == number
        assert (b.x.shape, b.x.dtype) == ((len(b), 3, 32, 32), torch.uint8)
        assert b.x.is_contiguous()
        assert b.x[:, 0, 0, 0].tolist() == [200 + i for i in b.index]  # severity 5
        assert b.y.tolist() == [i % 10 for i in b.index]
    assert torch.cat([b.y for b in batches]).tolist() == shifted.labels.tolist()
    for start in (0, 4, 6):  # every pass is the same and can start anywhere
        for a, b in zip(batches[start:], shifted.batches(start), strict=True):
            assert (a.number, a.x.tolist()) == (b.number, b.x.tolist())
    with pytest.raises(ConfigError, match="start=7"):
        next(shifted.batches(7))


def test_orders_of_a_data_set(cifar10c: Path) -> None:
    dataset = open_dataset("cifar10c", cifar10c, severity=[1, 3, 5], verify="off")
    for b in make_stream(dataset, "mixed", seed=1, batch_size=16, domains=["fog/1", "snow/5"]):
        assert b.domain == "mixed"
        assert b.x[:, 2, 9, 9].tolist() == (40 * np.array([1, 5])[b.domains] + b.index).tolist()
        assert b.y.tolist() == [i % 10 for i in b.index]
    order = "gradual+single-sample+long-tailed"
    stream = make_stream(dataset.only(["fog/1", "fog/3", "fog/5"]), order, imbalance=2.0)
    per_visit = sum(int(2 * 2.0 ** (-c / 9)) for c in range(10))
    assert len(stream) == stream.samples == 5 * per_visit
    severities = [dataset.domain(b.domain).severity for b in stream]
    assert severities[::per_visit] == [1, 3, 5, 3, 1]
    stream = make_stream(dataset, "correlated", seed=5, limit=7, domains=["snow/1", "fog/1"])
    assert [b.domain for b in stream] == ["snow/1", "fog/1"]
    common = {"order": "continual+correlated", "seed": 5, "batch_size": 128, "limit": 7}
    assert stream.recipe == {**common, "concentration": 0.1, "slots": None}


@pytest.mark.parametrize(
    ("order", "options", "message"),
    [
        ("continual", {"concentration": 1.0}, "without 'correlated'"),
        ("continual", {"imbalance": 1.0}, "without 'long-tailed'"),
        ("continual", {"share": 0.5}, "without 'dominant'"),
        ("single-sample", {"batch_size": 4}, "batches of 1"),
        ("continual", {"errors": "ignore"}, "errors='ignore'"),
        ("continual", {"workers": -1}, "workers=-1"),
        ("continual", {"domains": ["frost"]}, "no domain 'frost'; it has fog, snow"),
        ("gradual", {}, "several severities"),
    ],
)
def test_options_that_cannot_be(
    shifted: Stream, order: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_stream(shifted.dataset, order, **options)


@pytest.fixture
def damaged(tmp_path: Path, tree: Tree) -> Path:
    """Two domains of six images; all of `a` but one, and one of `b`, are unreadable."""
    tree(tmp_path / "set", {"a": {"cat": 3, "dog": 3}, "b": {"cat": 3, "dog": 3}})
    broken = [f"a/cat/{i:03}.png" for i in range(3)] + ["a/dog/000.png", "a/dog/001.png"]
    for name in [*broken, "b/dog/002.png"]:
        (tmp_path / "set" / name).write_bytes(b"\x89PNG broken")
    return tmp_path / "set"


def test_unreadable_images_are_skipped_counted_and_named(damaged: Path) -> None:
    dataset = open_dataset("folder", damaged, size=8)
    with pytest.raises(DataError, match=r"unreadable image .*set/a/"):
        list(make_stream(dataset, batch_size=4))
    stream = make_stream(dataset, "independent", batch_size=2, errors="skip")
    with pytest.warns(FrettaWarning) as caught:
        batches = list(stream)
    texts = [str(w.message) for w in caught]
    assert texts[0].startswith("skipped: unreadable image")
    assert texts[-1].startswith("6 of 12 images were unreadable and skipped")
    assert len(texts) == 2
    assert sum(len(b) for b in batches) == 6
    assert len(stream.skipped) == 6
    assert str(damaged / "b" / "dog" / "002.png") in {item.path for item in stream.skipped}
    # Batches that lost every image are not shown, but their reset is not lost.
    assert [b.domain for b in batches if b.reset] == ["a", "b"]
    assert batches[0].domain == "a"
    for b in batches:
        assert b.y.tolist() == [dataset.domain(b.domain).labels[i] for i in b.index]
        paths = dataset.domain(b.domain).paths or []
        assert b.x[:, 2, 0, 0].tolist() == [int(Path(paths[i]).stem) for i in b.index]
    with pytest.warns(FrettaWarning):
        list(stream)
    assert len(stream.skipped) == 6  # of the latest pass, not of all


def test_index_file_replays_exactly(shifted: Stream, cifar10: Path, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "stream.npz"
    options = {"corruption": ["fog", "contrast"], "severity": {"fog": (2, "imagenet")}}
    dataset = open_dataset("cifar10", cifar10, verify="off", **options)
    made = make_stream(dataset, "mixed+correlated", batch_size=16, domains=["contrast", "fog"])
    made.save(path)
    replay = load_stream(path, root=cifar10)
    assert [d.constants for d in replay.dataset.domains] == [None, "imagenet"]
    assert all((a.x == b.x).all() for a, b in zip(made, replay, strict=True))
    shifted.save(path)
    assert [p.name for p in path.parent.iterdir()] == ["stream.npz"]  # nothing temporary left
    digits = make_stream(open_dataset("digits"))
    digits.save(tmp_path / "digits.npz")
    assert (tmp_path / "digits.npz").stat().st_size < 3 * digits.samples
    replay = load_stream(path, root=tmp_path)
    assert replay.recipe == shifted.recipe
    assert replay.digest() == shifted.digest()
    for a, b in zip(shifted, replay, strict=True):
        assert (a.x == b.x).all()
        assert (a.y == b.y).all()
        assert (a.domain, a.reset, a.number) == (b.domain, b.reset, b.number)
    assert load_stream(path, shifted.dataset).dataset.names == shifted.dataset.names
    # A different data set with the same name must not be replayed.
    labels = tmp_path / "CIFAR-10-C" / "labels.npy"
    np.save(labels, np.tile(np.arange(20) % 5, 5))
    with pytest.raises(DataError, match="other images or labels"):
        load_stream(path, root=tmp_path)


def test_damaged_index_files(shifted: Stream, tmp_path: Path) -> None:
    path = tmp_path / "s.npz"

    def refused(message: str, **arrays: Any) -> None:
        if arrays:
            np.savez(path, **arrays)
        with pytest.raises(DataError, match=message):
            load_stream(path, shifted.dataset)

    refused("no index file")
    path.write_bytes(b"PK nonsense")
    refused("no stream index file")
    refused("no stream index file", a=np.zeros(2))
    shifted.save(path)
    saved, content = path.read_bytes(), dict(np.load(path))
    path.write_bytes(saved[: len(saved) // 2])
    refused("no stream index file")
    refused("do not fit together", **{**content, "index": content["index"][:-1]})
    header = {**json.loads(content["header"].tobytes()), "format": 99}
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    refused("index format 99", **{**content, "header": text})
    for name in ("index", "domain"):
        wrong = content[name].copy()
        wrong[3] = 200
        refused("outside the data set", **{**content, name: wrong})
