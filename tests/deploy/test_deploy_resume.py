"""Killed at any moment and resumed: the same bytes as if nothing had happened."""

from __future__ import annotations

import io
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deploy_nets import content, save_images, stop_after, table

from fretta.data.images import Decoding
from fretta.data.read_ahead import read_ahead
from fretta.deploy import AdaptOptions, adapt_images
from fretta.deploy.result import Counts
from fretta.errors import StoreError

Make = Callable[..., AdaptOptions]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"compare_source": True, "prior": {"ant": 0.5}},
        {"method": "g-fret", "hyperparameters": {}},
        {"method": "sar", "hyperparameters": {}, "guard": "reset"},
        {"guard": "none"},
        {"hyperparameters": {"lr": 30.0}},  # the guard has much to do
    ],
)
def test_a_killed_run_is_resumed(options: Make, tmp_path: Path, changes: Any) -> None:
    """A copy of the folder between two batches is what kill -9 leaves."""

    def copy(counts: Counts) -> None:
        if counts.batches in (2, 4):
            shutil.copytree(tmp_path / "out", tmp_path / f"killed{counts.batches}")

    full = adapt_images(options(**changes, checkpoint_seconds=0.0), on_batch=copy)
    assert full.complete
    for at in (2, 4):
        out = tmp_path / f"killed{at}"
        assert len(table(out)) == 8 * at
        result = adapt_images(options(**changes, out=out), resume=True)
        assert result.resumed_at == at - 1  # the copy was made before its checkpoint
        assert content(out) == content(tmp_path / "out")
        assert result.estimate == full.estimate
        assert result.counts == full.counts
        assert not (out / "checkpoint.pt").exists()


def test_stopped_failed_or_killed_early(options: Make, tmp_path: Path, images: Path) -> None:
    """Stopped; killed before a checkpoint; an error; stopped before the first batch."""

    def copy(counts: Counts) -> None:
        if counts.batches == 2:
            shutil.copytree(tmp_path / "full", tmp_path / "early")

    adapt_images(options(out=tmp_path / "full"), on_batch=copy)
    result = stop_after(2, options(out=tmp_path / "stopped"))
    assert not result.complete
    assert result.counts.batches == 2
    assert "interrupted" in (tmp_path / "stopped" / "summary.html").read_text()
    assert (tmp_path / "stopped" / "adapted.safetensors").is_file()

    def fail(counts: Counts) -> None:
        if counts.batches == 3:
            raise RuntimeError("lightning")

    with pytest.raises(RuntimeError, match="lightning"):
        adapt_images(options(out=tmp_path / "failed"), on_batch=fail)
    assert stop_after(0, options(out=tmp_path / "never")).counts.images == 0
    for name, resumed_at in {"early": 0, "stopped": 2, "failed": 3, "never": 0}.items():
        result = adapt_images(options(out=tmp_path / name), resume=True)
        assert (result.complete, result.resumed_at) == (True, resumed_at)
        assert content(tmp_path / name) == content(tmp_path / "full")


def test_other_settings_are_refused(options: Make, images: Path) -> None:
    stop_after(2, options())
    for changes, fact in (
        ({"method": "eta", "hyperparameters": {}}, "method: 'tent', now 'eta'"),
        ({"hyperparameters": {"lr": 0.02}}, "hyperparameters"),
        ({"batch_size": 16}, "batch_size: 8, now 16"),
        ({"limit": 10}, "count: 44, now 10"),
        ({"guard": "none"}, "guard"),
        ({"prior": {"ant": 0.5}}, "prior: None, now {'ant': 0.5}"),
    ):
        with pytest.raises(StoreError, match="began with other settings") as error:
            adapt_images(options(**changes), resume=True)
        assert fact in str(error.value)
    (images / "000.png").rename(images / "0.png")
    with pytest.raises(StoreError, match="files"):
        adapt_images(options(), resume=True)
    (images / "0.png").rename(images / "000.png")
    weights = Path(str(options().weights))
    right = weights.read_bytes()
    weights.write_bytes(right[:-4] + b"\0\0\0\0")
    with pytest.raises(StoreError, match="weights"):
        adapt_images(options(workers=1), resume=True)


def test_paths_from_a_stream_resume_if_they_come_again(options: Make, images: Path) -> None:
    names = "\n".join(sorted(p.name for p in images.iterdir())).encode()
    full = options(data="-", root=images, out=images.parent / "full")
    adapt_images(full, stdin=io.BytesIO(names))
    part = options(data="-", root=images)
    stop_after(2, part, stdin=io.BytesIO(names))
    with pytest.raises(StoreError, match="the 16 paths before the checkpoint are not those"):
        adapt_images(part, resume=True, stdin=io.BytesIO(names[4:]))
    adapt_images(options(data="-", root=images, workers=1), resume=True, stdin=io.BytesIO(names))
    assert content(part.out) == content(full.out)


def test_nothing_is_overwritten(options: Make, tmp_path: Path) -> None:
    adapt_images(options())
    with pytest.raises(StoreError, match=r"is not empty .*--resume.*--force"):
        adapt_images(options())
    with pytest.raises(StoreError, match="is complete: there is nothing to resume"):
        adapt_images(options(), resume=True)
    (tmp_path / "out" / "mine.txt").write_text("keep me")
    before = content(tmp_path / "out")
    with pytest.raises(Exception, match="does not fit"):  # a mistake leaves the run alone
        adapt_images(options(model="deploy_nets:gray", mean=(0.5,), std=(0.5,)), force=True)
    assert content(tmp_path / "out") == before
    adapt_images(options(), force=True)
    assert content(tmp_path / "out") == before
    assert (tmp_path / "out" / "mine.txt").read_text() == "keep me"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(StoreError, match="holds no run to resume"):
        adapt_images(options(out=tmp_path / "other"), resume=True)


def test_one_run_at_a_time(options: Make) -> None:
    def second(counts: Counts) -> None:
        with pytest.raises(StoreError, match="another run is writing"):
            adapt_images(options(), resume=True)

    adapt_images(options(), on_batch=second)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("checkpoint.pt", b"junk", r"checkpoint.* cannot be read"),
        ("checkpoint.pt", b"", r"checkpoint.* cannot be read \(EOFError\)"),
        ("predictions.csv", b"path\n", "was changed or cut"),
        ("settings.json", b"{", r"settings.json.* cannot be read"),
    ],
)
def test_a_damaged_file_is_named(options: Make, name: str, damage: bytes, message: str) -> None:
    stop_after(2, options())
    (options().out / name).write_bytes(damage)
    with pytest.raises(StoreError, match=message):
        adapt_images(options(), resume=True)


@pytest.mark.parametrize("name", ["predictions.csv", "health.jsonl"])
def test_an_edited_number_is_noticed(options: Make, name: str) -> None:
    """As many bytes as before, one of them another."""
    stop_after(2, options())
    file = options().out / name
    content = file.read_bytes()
    place = content.index(b"0.")
    file.write_bytes(content[:place] + b"1" + content[place + 1 :])
    with pytest.raises(StoreError, match="was changed or cut"):
        adapt_images(options(), resume=True)


def test_the_order_of_folders(options: Make, tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        save_images(tmp_path / "classes" / name, 9)
    data = str(tmp_path / "classes")
    result = adapt_images(options(data=data))
    paths = [row["path"] for row in table(tmp_path / "out")]
    assert paths != sorted(paths)
    assert any("shuffled (seed 0)" in text for text in result.notes)
    assert sum(result.counts.labeled) == 18
    assert result.counts.compared == 18  # all, since the classes are known
    adapt_images(options(data=data, shuffle=False), force=True)
    assert [row["path"] for row in table(tmp_path / "out")] == sorted(paths)


def test_a_batch_cut_off_by_a_stop_is_not_taken(images: Path) -> None:
    """Ctrl-C closes the pipe as well: the rest of a batch must not pass for the last one."""
    names, stops = sorted(os.listdir(images))[:3], iter([False, True])  # before and after waiting
    batches = read_ahead(
        [names], lambda n: images / n, Decoding(16), 1, threading.Event(), lambda: next(stops)
    )
    assert list(batches) == []
