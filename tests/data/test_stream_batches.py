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
    assert shifted.samples == 40
    assert [len(b) for b in batches] == [8, 8, 4, 8, 8, 4]
    assert [b.domain for b in batches] == ["fog"] * 3 + ["snow"] * 3
    assert [b.reset for b in batches] == [True, False, False] * 2
    assert [b.number for b in batches] == list(range(6))
    for b in batches:
        assert b.x.dtype == torch.uint8
        assert b.x.shape == (len(b), 3, 32, 32)
        assert b.x.is_contiguous()
        assert b.y.dtype == torch.int64
        assert b.x[:, 0, 0, 0].tolist() == [200 + i for i in b.index]  # severity 5
        assert b.y.tolist() == [i % 10 for i in b.index]
    assert torch.cat([b.y for b in batches]).tolist() == shifted.labels.tolist()
    assert shifted.paths(batches[0])[0] == f"fog#{batches[0].index[0]}"


def test_every_pass_is_the_same_and_can_start_anywhere(shifted: Stream) -> None:
    first, second = list(shifted), list(shifted)
    assert all((a.x == b.x).all() for a, b in zip(first, second, strict=True))
    rest = list(shifted.batches(4))
    assert [b.number for b in rest] == [4, 5]
    assert (rest[0].x == first[4].x).all()
    assert list(shifted.batches(6)) == []
    with pytest.raises(ConfigError, match="start=7"):
        next(shifted.batches(7))


def test_mixed_batches(cifar10c: Path) -> None:
    dataset = open_dataset(
        "cifar10c", cifar10c, domains=["fog", "snow"], severity=[1, 5], verify="off"
    )
    batches = list(make_stream(dataset, "mixed", seed=1, batch_size=16))
    assert {b.domain for b in batches} == {"mixed"}
    for b in batches:
        severity = np.array([1, 5, 1, 5])[b.domains]
        assert b.x[:, 2, 9, 9].tolist() == (40 * severity + b.index).tolist()
        assert b.y.tolist() == [i % 10 for i in b.index]


def test_single_sample_gradual_and_long_tailed(cifar10c: Path) -> None:
    dataset = open_dataset("cifar10c", cifar10c, domains="fog", severity=[1, 3, 5], verify="off")
    stream = make_stream(dataset, "gradual+single-sample+long-tailed", imbalance=2.0)
    per_visit = sum(int(2 * 2.0 ** (-c / 9)) for c in range(10))
    assert len(stream) == stream.samples == 5 * per_visit
    assert stream.recipe["batch_size"] == 1
    severities = [dataset.domain(b.domain).severity for b in stream]
    assert severities[::per_visit] == [1, 3, 5, 3, 1]


def test_domains_limit_and_recipe(cifar10c: Path) -> None:
    dataset = open_dataset("cifar10c", cifar10c, verify="off")
    stream = make_stream(dataset, "correlated", seed=5, limit=7, domains=["snow", "fog"])
    assert [b.domain for b in stream] == ["snow", "fog"]
    assert stream.recipe == {
        "order": "continual+correlated",
        "seed": 5,
        "batch_size": 128,
        "limit": 7,
        "concentration": 0.1,
        "slots": None,
    }


def test_options_that_contradict_each_other(shifted: Stream) -> None:
    dataset = shifted.dataset
    for order, options, message in (
        ("continual", {"concentration": 1.0}, "without 'correlated'"),
        ("continual", {"imbalance": 1.0}, "without 'long-tailed'"),
        ("single-sample", {"batch_size": 4}, "batches of 1"),
        ("continual", {"errors": "ignore"}, "errors='ignore'"),
        ("continual", {"workers": -1}, "workers=-1"),
        ("continual", {"prefetch": 0}, "prefetch=0"),
        ("continual", {"domains": ["frost"]}, "no domain 'frost'; it has fog, snow"),
        ("gradual", {}, "several severities"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_stream(dataset, order, **options)  # type: ignore[arg-type]


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
        for path, image in zip(stream.paths(b), b.x, strict=True):
            assert image[2, 0, 0] == int(Path(path).stem)  # blue tells which file it is
    with pytest.warns(FrettaWarning):
        list(stream)
    assert len(stream.skipped) == 6  # of the latest pass, not of all


def test_index_file_replays_exactly(shifted: Stream, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "stream.npz"
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
    again = load_stream(path, shifted.dataset)
    assert again.dataset.names == shifted.dataset.names
    # A different data set with the same name must not be replayed.
    labels = tmp_path / "CIFAR-10-C" / "labels.npy"
    np.save(labels, np.tile(np.arange(20) % 5, 5))
    with pytest.raises(DataError, match="other images or labels"):
        load_stream(path, root=tmp_path)


def test_index_of_corruptions_made_on_the_fly(cifar10: Path, tmp_path: Path) -> None:
    options = {"corruption": ["fog", "contrast"], "severity": {"fog": (2, "imagenet")}}
    dataset = open_dataset("cifar10", cifar10, verify="off", **options)
    stream = make_stream(dataset, "mixed+correlated", batch_size=16, domains=["contrast", "fog"])
    stream.save(tmp_path / "s.npz")
    replay = load_stream(tmp_path / "s.npz", root=cifar10)
    assert [d.constants for d in replay.dataset.domains] == [None, "imagenet"]
    assert all((a.x == b.x).all() for a, b in zip(stream, replay, strict=True))


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
