"""What a run writes: rows, weights that load anywhere, unreadable files, full disks."""

from __future__ import annotations

import errno
import io
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from deploy_nets import ENVIRONMENT, NAMES, content, table, tiny
from PIL import Image
from safetensors.torch import load_file

from fretta.deploy import AdaptOptions, adapt_images
from fretta.deploy.output import COLUMNS
from fretta.deploy.result import Counts
from fretta.errors import ConfigError, DataError, StoreError

Make = Callable[..., AdaptOptions]


def test_every_file_has_its_row(options: Make, tmp_path: Path, images: Path) -> None:
    frames = [Image.new("RGB", (16, 16), color) for color in ("white", "black")]
    (images / "043.png").unlink()
    frames[0].save(images / "zz.gif", save_all=True, append_images=frames[1:])
    result = adapt_images(options())
    rows = table(tmp_path / "out")
    assert [row["path"] for row in rows] == sorted(p.name for p in images.iterdir())
    assert tuple(rows[0]) == COLUMNS
    for row in rows:
        assert row["label"] == NAMES[int(row["class"])]
        shares = [float(row[f"confidence{i}"]) for i in ("", 2, 3, 4)]
        assert sum(shares) == pytest.approx(1, abs=3e-6)  # four classes in all
        assert sorted(shares, reverse=True) == shares
        assert row["label5"] == row["confidence5"] == ""
    assert [row["note"] for row in rows] == [""] * 43 + ["first of 2 frames"]
    compared = [row["source_label"] != "" for row in rows]
    assert sum(compared) == result.counts.compared == 6  # one in eight
    lines = (tmp_path / "out" / "health.jsonl").read_text().splitlines()
    health = [json.loads(line) for line in lines]
    assert [h["batch"] for h in health] == list(range(6))
    assert sum(h["samples"] for h in health) == 44


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_source_model_sees_one_image_in_eight_of_small_batches_too(
    options: Make, tmp_path: Path, batch_size: int
) -> None:
    result = adapt_images(options(batch_size=batch_size, method="source", hyperparameters={}))
    seen = [i for i, row in enumerate(table(tmp_path / "out")) if row["source_label"]]
    assert len(seen) == result.counts.compared == 6  # of 44


def test_a_model_that_diverges_predicts_nothing(options: Make, tmp_path: Path) -> None:
    """Its argmax would be the first class, with confidence NaN."""
    result = adapt_images(options(method="tsd", hyperparameters={"lr": 1e25}, guard="none"))
    rows = table(tmp_path / "out")
    lost = [row for row in rows if "not finite" in row["note"]]
    assert len(rows) == 44
    assert len(lost) >= 8
    assert all(row["label"] == row["class"] == row["confidence"] == "" for row in lost)
    assert sum(result.counts.predicted) == 44 - len(lost)


def test_the_weights_load_without_fretta(options: Make, tmp_path: Path, images: Path) -> None:
    result = adapt_images(options(method="tent", hyperparameters={"lr": 0.05}))
    net = tiny()
    net.load_state_dict(load_file(tmp_path / "out" / "adapted.safetensors"))  # strict
    before, after = load_file(tmp_path / "tiny.safetensors"), net.state_dict()
    assert not torch.equal(after["1.weight"], before["1.weight"])  # adapted
    assert not torch.equal(after["1.running_mean"], before["1.running_mean"])  # re-estimated
    assert torch.equal(after["0.weight"], before["0.weight"])  # frozen
    # The agreement that is reported, computed again from the table.
    net.eval()
    same = 0
    for row in table(tmp_path / "out"):
        pixels = torch.from_numpy(np.asarray(Image.open(images / row["path"])).copy())
        x = (pixels.permute(2, 0, 1)[None] / 255 - 0.5) / 0.25
        same += int(net(x).argmax()) == int(row["class"])
    assert result.weights is not None
    assert (result.weights.images, result.weights.checked) == (16, 44)
    assert result.weights.agreement == pytest.approx(same / 44, abs=1.5 / 44)
    # a method that changes nothing gives the same weights
    result = adapt_images(options(method="source", hyperparameters={}), force=True)
    after = load_file(tmp_path / "out" / "adapted.safetensors")
    assert after.keys() == before.keys()
    assert all(torch.equal(after[k], before[k]) for k in after)
    assert result.counts.changed == 0
    assert result.weights is not None
    assert result.weights.agreement == 1


def test_unreadable_files(options: Make, tmp_path: Path, images: Path) -> None:
    (images / "020.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"unreadable image '020.png': the file is empty.*--resume"):
        adapt_images(options())
    assert len(table(tmp_path / "out")) == 16  # two batches came before
    result = adapt_images(options(skip_unreadable=True), resume=True)
    assert result.resumed_at == 2
    rows = table(tmp_path / "out")
    assert len(rows) == 44
    assert rows[20]["note"] == "unreadable: the file is empty"
    assert rows[20]["label"] == ""
    assert (result.counts.images, result.counts.unreadable) == (43, 1)
    assert "the file is empty" in (tmp_path / "out" / "summary.html").read_text()
    # in the first batch: nothing is left behind
    (images / "000.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"unreadable image '000\.png'"):
        adapt_images(options(out=tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_nothing_readable_is_an_error(options: Make, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.jpg").write_text("x")
    with pytest.raises(DataError, match="none of 1 files could be read"):
        adapt_images(options(data=str(tmp_path / "bad"), skip_unreadable=True))
    (tmp_path / "bad" / "a.jpg").rename(tmp_path / "bad" / "a.txt")
    with pytest.raises(DataError, match=r"no images in .*1 other files"):
        adapt_images(options(data=str(tmp_path / "bad"), out=tmp_path / "new"))
    with pytest.raises(DataError, match="no path arrived on the standard input"):
        adapt_images(options(data="-", out=tmp_path / "new"), stdin=io.BytesIO(b"\n"))
    (tmp_path / "list.txt").write_text("\n")
    with pytest.raises(DataError, match=r"list\.txt' is empty; write the path"):
        adapt_images(options(data=str(tmp_path / "list.txt"), out=tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_images_may_be_gone_at_the_end(options: Make, tmp_path: Path, images: Path) -> None:
    """As those of a pipe, deleted once they were read."""
    names = "\n".join(sorted(os.listdir(images))).encode()

    def remove(counts: Counts) -> None:
        if counts.files == 44:
            shutil.rmtree(images)

    given = options(data="-", root=images, guard="none")
    result = adapt_images(given, stdin=io.BytesIO(names), on_batch=remove)
    assert result.complete
    assert result.weights is None
    expected = "no weights were written: none of the last 16 images could be read again"
    assert expected in result.notes
    assert (tmp_path / "out" / "summary.html").is_file()


def test_source_images_for_eata(options: Make, tmp_path: Path, images: Path) -> None:
    settings = {"method": "eata", "hyperparameters": {}}
    with pytest.raises(Exception, match="needs unlabeled source images"):
        adapt_images(options(**settings))
    assert adapt_images(options(**settings, source=images, out=tmp_path / "new")).complete
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "images").symlink_to(images)
    settings |= {"source": tmp_path / "links", "out": tmp_path / "linked"}
    with pytest.raises(DataError, match="no images in"):
        adapt_images(options(**settings))
    assert adapt_images(options(**settings, allow_outside=True)).complete


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"guard": "maybe"}, "--guard 'maybe' is unknown"),
        ({"batch_size": 0}, "--batch-size 0"),
        ({"size": None}, "is not known; give size="),
        ({"method": "tint"}, "did you mean 'tent'"),
        ({"hyperparameters": {"rate": 1}}, "no hyper-parameter 'rate'"),
        ({"model": "timm:resnet18", "weights": None}, "was never trained"),
        ({"device": "toaster"}, "toaster.* cannot be used"),
        ({"data": "-", "shuffle": True}, "--shuffle needs all paths"),
    ],
)
def test_mistakes_are_explained_before_any_work(
    options: Make, tmp_path: Path, changes: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        adapt_images(options(**changes))
    assert not (tmp_path / "out").exists()


# ---- full disks ---------------------------------------------------------------------------------


def test_a_full_disk_leaves_whole_rows(
    options: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapt_images(options(out=tmp_path / "full"))
    real, room = os.pwrite, 2500

    def pwrite(number: int, content: bytes, offset: int) -> int:
        nonlocal room
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(number, content[:room], offset)  # as a full disk does: a part fits
        room -= written
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        with pytest.raises(StoreError, match=r"predictions.csv|health.jsonl") as error:
            adapt_images(options())
    assert "No space left on device" in str(error.value)
    assert "--resume" in str(error.value)
    rows = (tmp_path / "out" / "predictions.csv").read_bytes()
    assert (tmp_path / "full" / "predictions.csv").read_bytes().startswith(rows)
    assert rows.endswith(b"\n")
    assert adapt_images(options(), resume=True).complete
    assert content(tmp_path / "out") == content(tmp_path / "full")


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system itself refuses to let files grow beyond this."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_the_system_refuses_to_write(options: Make, tmp_path: Path) -> None:
    adapt_images(options(out=tmp_path / "full"))
    most = (tmp_path / "full" / "settings.json").stat().st_size  # these just fit
    with pytest.raises(StoreError, match="File too large"), largest_file(most):
        adapt_images(options())  # the table and the checkpoint are both too large
    rows = (tmp_path / "out" / "predictions.csv").read_bytes()
    assert 0 < len(rows) <= most
    assert (tmp_path / "full" / "predictions.csv").read_bytes().startswith(rows)
    assert not list((tmp_path / "out").glob("*.part*"))
    adapt_images(options(), resume=True)
    assert content(tmp_path / "out") == content(tmp_path / "full")


def test_weights_that_do_not_fit_can_be_written_later(options: Make, tmp_path: Path) -> None:
    adapt_images(options(out=tmp_path / "full"))

    def full(path: Path, content: bytes) -> None:
        if path.name == "adapted.safetensors":
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_bytes(content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fretta.deploy.output.replace_file", full)
        with pytest.raises(StoreError, match=r"adapted.safetensors.*No space left"):
            adapt_images(options())
    result = adapt_images(options(), resume=True)  # only the weights are left to do
    assert result.resumed_at == result.counts.batches == 6
    assert content(tmp_path / "out") == content(tmp_path / "full")


SCRIPT = """
import resource, sys, torch; torch.set_num_threads(1)
from pathlib import Path; from fretta.deploy import AdaptOptions, adapt_images
data, out, weights = sys.argv[1:]
o = adapt_images(AdaptOptions('deploy_nets:tiny', data, Path(out), weights=weights,
    method='bn', size=16, mean=(.5,) * 3, std=(.5,) * 3, device='cpu'))
print(o.counts.images, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_folder(options: Make, tmp_path: Path, images: Path) -> None:
    """20,000 files; the process may need no more than for 2,000, but for their names."""
    peaks = []
    for count in (2_000, 20_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        for number in range(count):
            os.link(images / f"{number % 44:03d}.png", folder / f"{number:05d}.png")
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, folder, tmp_path / f"o{count}", options().weights or ""],
            capture_output=True,
            text=True,
            check=True,
            env=ENVIRONMENT,
        )
        seen, peak = map(int, done.stdout.split())
        assert seen == count
        peaks.append(peak / 1024)
    assert peaks[1] - peaks[0] < 24  # megabytes
