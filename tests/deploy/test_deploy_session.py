"""What a run writes: rows, weights that load anywhere, unreadable files, full disks."""

from __future__ import annotations

import csv
import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from deploy_nets import ENVIRONMENT, NAMES, save_images, tiny
from PIL import Image
from safetensors.torch import load_file

from fretta.deploy import AdaptOptions, AdaptResult, adapt_images
from fretta.deploy.output import COLUMNS
from fretta.errors import ConfigError, DataError, StoreError

Make = Callable[..., AdaptOptions]


def run(plan: AdaptOptions, **options: Any) -> AdaptResult:
    return adapt_images(plan, **options)


def table(out: Path) -> list[dict[str, str]]:
    with (out / "predictions.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_file_has_its_row(plan: Make, tmp_path: Path, images: Path) -> None:
    outcome = run(plan())
    rows = table(tmp_path / "out")
    assert [row["path"] for row in rows] == sorted(p.name for p in images.iterdir())
    assert tuple(rows[0]) == COLUMNS
    for row in rows:
        assert row["label"] == NAMES[int(row["class"])]
        shares = [row["confidence"], *(row[f"confidence{i}"] for i in (2, 3, 4))]
        assert sum(map(float, shares)) == pytest.approx(1, abs=3e-6)  # four classes in all
        assert sorted(map(float, shares), reverse=True) == list(map(float, shares))
        assert row["label5"] == row["confidence5"] == row["note"] == ""
    asked = [row["source_label"] != "" for row in rows]
    assert sum(asked) == outcome.counts.compared == 6  # one in eight of every batch
    health = [
        json.loads(line) for line in (tmp_path / "out" / "health.jsonl").read_text().splitlines()
    ]
    assert [h["batch"] for h in health] == list(range(6))
    assert sum(h["samples"] for h in health) == 44


def test_the_weights_load_without_fretta(plan: Make, tmp_path: Path, images: Path) -> None:
    outcome = run(plan(method="tent", hyperparameters={"lr": 0.05}))
    net = tiny()
    net.load_state_dict(load_file(tmp_path / "out" / "adapted.safetensors"))  # strict
    before = load_file(tmp_path / "tiny.safetensors")
    after = net.state_dict()
    assert not torch.equal(after["1.weight"], before["1.weight"])  # adapted
    assert not torch.equal(after["1.running_mean"], before["1.running_mean"])  # re-estimated
    assert torch.equal(after["0.weight"], before["0.weight"])  # frozen
    # The agreement that is reported, computed again from the table.
    import numpy as np

    net.eval()
    same = 0
    for row in table(tmp_path / "out"):
        pixels = torch.from_numpy(np.asarray(Image.open(images / row["path"])).copy())
        x = (pixels.permute(2, 0, 1)[None] / 255 - 0.5) / 0.25
        same += int(net(x).argmax()) == int(row["class"])
    assert outcome.weights is not None
    assert (outcome.weights.images, outcome.weights.checked) == (16, 44)
    assert outcome.weights.agreement == pytest.approx(same / 44, abs=1.5 / 44)


def test_a_method_that_changes_nothing_gives_the_same_weights(plan: Make, tmp_path: Path) -> None:
    outcome = run(plan(method="source", hyperparameters={}))
    ours, theirs = (
        load_file(tmp_path / "out" / "adapted.safetensors"),
        load_file(tmp_path / "tiny.safetensors"),
    )
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[k], theirs[k]) for k in ours)
    assert outcome.counts.changed == 0
    assert outcome.weights is not None
    assert outcome.weights.agreement == 1


def test_accuracy_before_and_after(plan: Make, tmp_path: Path) -> None:
    for name in NAMES:
        save_images(tmp_path / "classes" / name.upper(), 5)  # case does not matter
    outcome = run(plan(data=str(tmp_path / "classes")))
    rows = table(tmp_path / "out")
    truth = [row["path"].split("/")[0].lower() for row in rows]
    right = sum(row["label"] == true for row, true in zip(rows, truth, strict=True))
    before = sum(row["source_label"] == true for row, true in zip(rows, truth, strict=True))
    assert outcome.accuracy == right / 20
    assert outcome.source_accuracy == before / 20
    save_images(tmp_path / "classes" / "zebra", 1)
    strange = run(plan(data=str(tmp_path / "classes")), force=True)
    assert strange.accuracy is None
    assert any("1 of 5 folders are not named as a class" in text for text in strange.notes)


def test_unreadable_files(plan: Make, tmp_path: Path, images: Path) -> None:
    (images / "020.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"unreadable image '020.png': the file is empty.*--resume"):
        run(plan())
    assert len(table(tmp_path / "out")) == 16  # two batches came before
    outcome = run(plan(skip_unreadable=True), resume=True)
    assert outcome.resumed_at == 2
    rows = table(tmp_path / "out")
    assert len(rows) == 44
    assert rows[20]["note"] == "unreadable: the file is empty"
    assert rows[20]["label"] == ""
    assert (outcome.counts.images, outcome.counts.unreadable) == (43, 1)
    assert "the file is empty" in (tmp_path / "out" / "summary.html").read_text()


def test_nothing_readable_is_an_error(plan: Make, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.jpg").write_text("x")
    with pytest.raises(DataError, match="none of 1 files could be read"):
        run(plan(data=str(tmp_path / "bad"), skip_unreadable=True))
    (tmp_path / "bad" / "a.jpg").rename(tmp_path / "bad" / "a.txt")
    with pytest.raises(DataError, match=r"no images in .*1 other files"):
        run(plan(data=str(tmp_path / "bad"), out=tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_a_first_batch_that_fails_leaves_nothing(plan: Make, tmp_path: Path, images: Path) -> None:
    (images / "000.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"unreadable image '000\.png'"):
        run(plan())
    assert not (tmp_path / "out").exists()
    assert run(plan(skip_unreadable=True), resume=True).complete


def test_stopped_before_the_first_batch(plan: Make) -> None:
    outcome = run(plan(), stopped=lambda: True)
    assert not outcome.complete
    assert outcome.counts.images == 0
    assert run(plan(), resume=True).complete


def test_names_of_every_kind_in_the_table(plan: Make, tmp_path: Path) -> None:
    names = ["=cmd|x.png", "größe 猫.png", "line\nbreak.png", 'quo"te,.png', "\udcff.png"]
    folder = tmp_path / "odd"
    save_images(folder, 1)
    for name in names:
        os.link(folder / "000.png", folder / name)
    run(plan(data=str(folder)))
    paths = {row["path"] for row in table(tmp_path / "out")}  # valid UTF-8, or this would fail
    assert paths == {"000.png", "./=cmd|x.png", *names[1:4], "\\udcff.png"}


def test_a_first_frame_is_noted(plan: Make, tmp_path: Path, images: Path) -> None:
    frames = [Image.new("RGB", (16, 16), color) for color in ("white", "black")]
    frames[0].save(images / "zz.gif", save_all=True, append_images=frames[1:])
    run(plan())
    assert table(tmp_path / "out")[-1]["note"] == "first of 2 frames"


def test_source_images_for_eata(plan: Make, tmp_path: Path, images: Path) -> None:
    settings = {"method": "eata", "hyperparameters": {}}
    with pytest.raises(Exception, match="needs unlabeled source images"):
        run(plan(**settings))
    assert run(plan(**settings, source=images, out=tmp_path / "new")).complete


@pytest.mark.parametrize(
    ("changes", "said"),
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
    plan: Make, tmp_path: Path, changes: Any, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        run(plan(**changes))
    assert not (tmp_path / "out").exists()


# ---- full disks ---------------------------------------------------------------------------------


def test_a_full_disk_leaves_whole_rows(
    plan: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(plan(out=tmp_path / "whole"))
    real, room = os.pwrite, 2500

    def pwrite(number: int, content: bytes, offset: int) -> int:
        nonlocal room
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(number, content[:room], offset)  # as a full disk does: a part fits
        room -= written
        return written

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(StoreError, match=r"predictions.csv|health.jsonl") as error:
        run(plan())
    assert "No space left on device" in str(error.value)
    assert "--resume" in str(error.value)
    rows = (tmp_path / "out" / "predictions.csv").read_bytes()
    assert (tmp_path / "whole" / "predictions.csv").read_bytes().startswith(rows)
    assert rows.endswith(b"\n")
    monkeypatch.setattr(os, "pwrite", real)
    assert run(plan(), resume=True).complete
    for name in ("predictions.csv", "health.jsonl", "adapted.safetensors"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system itself refuses to let files grow beyond this."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_the_system_refuses_to_write(plan: Make, tmp_path: Path) -> None:
    run(plan(out=tmp_path / "whole"))
    most = (tmp_path / "whole" / "settings.json").stat().st_size  # these just fit
    with pytest.raises(StoreError, match="File too large"), largest_file(most):
        run(plan())  # the table and the checkpoint are both too large
    rows = (tmp_path / "out" / "predictions.csv").read_bytes()
    assert 0 < len(rows) <= most
    assert (tmp_path / "whole" / "predictions.csv").read_bytes().startswith(rows)
    assert not list((tmp_path / "out").glob("*.part*"))
    run(plan(), resume=True)
    for name in ("predictions.csv", "adapted.safetensors"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_weights_that_do_not_fit_can_be_written_later(plan: Make, tmp_path: Path) -> None:
    run(plan(out=tmp_path / "whole"))

    def full(path: Path, content: bytes) -> None:
        if path.name == "adapted.safetensors":
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_bytes(content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fretta.deploy.output.replace_file", full)
        with pytest.raises(StoreError, match=r"adapted.safetensors.*No space left"):
            run(plan())
    outcome = run(plan(), resume=True)  # only the weights are left to do
    assert outcome.resumed_at == outcome.counts.batches == 6
    for name in ("predictions.csv", "adapted.safetensors"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_folder(plan: Make, tmp_path: Path, images: Path) -> None:
    """20,000 files; the process may need no more than for 2,000, but for their names."""
    script = (
        "import resource, sys, torch; torch.set_num_threads(1)\n"
        "from pathlib import Path; from fretta.deploy import AdaptOptions, adapt_images\n"
        "data, out, weights = sys.argv[1:]\n"
        "o = adapt_images(AdaptOptions('deploy_nets:tiny', data, Path(out), weights=weights,\n"
        "    method='bn', size=16, mean=(.5,) * 3, std=(.5,) * 3, device='cpu'))\n"
        "print(o.counts.images, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    peaks = []
    for count in (2_000, 20_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        for number in range(count):
            os.link(images / f"{number % 44:03d}.png", folder / f"{number:05d}.png")
        done = subprocess.run(
            [sys.executable, "-c", script, folder, tmp_path / f"o{count}", plan().weights or ""],
            capture_output=True,
            text=True,
            check=True,
            env=ENVIRONMENT,
        )
        seen, peak = map(int, done.stdout.split())
        assert seen == count
        peaks.append(peak / 1024)
    assert peaks[1] - peaks[0] < 24  # megabytes
