"""Corrupted data sets on disk: layouts, resuming, workers, damaged files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corruption_pictures import make_pictures
from PIL import Image

from fretta.corruptions import corrupt
from fretta.corruptions.base import read_rgb
from fretta.data import corrupt_folder, write
from fretta.errors import ConfigError, DataError

LABELS = [3, 1, 4, 1, 5, 9]


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    data = make_pictures(6, 32, 32).transpose(0, 3, 1, 2).reshape(6, -1)
    with (folder / "test_batch").open("wb") as file:
        pickle.dump({b"data": data, b"labels": LABELS}, file, protocol=2)
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two domains, two classes, formats and sizes mixed."""
    folder = tmp_path / "pictures"
    names = ("art/dog/1.jpg", "art/dog/2.png", "art/cat/x.JPEG", "photo/dog/3.bmp")
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(make_pictures(1, 40 + number, 50, seed=number)[0]).save(path)
    (folder / "art" / "notes.txt").write_text("not an image")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_cifar_layout(cifar: Path, tmp_path: Path) -> None:
    images = make_pictures(6, 32, 32)
    steps: list[tuple[int, int]] = []
    summary = corrupt_folder(
        cifar, tmp_path / "c", ["fog", "contrast"], seed=2, progress=lambda *now: steps.append(now)
    )
    assert (summary.layout, summary.written, summary.kept) == ("cifar", 60, 0)
    assert steps[-1] == (60, 60)
    assert sorted(contents(tmp_path / "c")) == [
        "contrast.npy",
        "fog.npy",
        "labels.npy",
        "severities.json",
    ]
    np.testing.assert_array_equal(np.load(tmp_path / "c" / "labels.npy"), LABELS * 5)
    array = np.load(tmp_path / "c" / "fog.npy")
    assert array.shape == (30, 32, 32, 3)
    for severity in (1, 5):
        block = array[(severity - 1) * 6 : severity * 6]
        np.testing.assert_array_equal(block, corrupt(images, "fog", severity, seed=2))


def test_some_severities_first_the_others_later(cifar: Path, tmp_path: Path) -> None:
    part, complete = tmp_path / "part", tmp_path / "complete"
    corrupt_folder(cifar, part, "fog", 5)
    record = json.loads((part / "severities.json").read_text())
    assert record["complete"] == {"fog": [5]}
    assert not np.load(part / "fog.npy")[:24].any()  # room for severities 1 to 4
    summary = corrupt_folder(cifar, part, "fog")
    assert (summary.written, summary.kept) == (24, 6)
    corrupt_folder(cifar, complete, "fog")
    assert contents(part) == contents(complete)
    again = corrupt_folder(cifar, part, "fog")
    assert (again.written, again.kept) == (0, 30)


def test_an_interrupted_run_continues(
    cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, calls = tmp_path / "c", []

    def failing(*args: object, **named: object) -> object:
        calls.append(args[1])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return corrupt(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(write, "corrupt", failing)
    with pytest.raises(KeyboardInterrupt):
        corrupt_folder(cifar, target, ["fog", "contrast"], [1, 2])
    # fog is complete; contrast was interrupted and left nothing behind
    assert sorted(contents(target)) == ["fog.npy", "labels.npy", "severities.json"]
    monkeypatch.undo()
    summary = corrupt_folder(cifar, target, ["fog", "contrast"], [1, 2])
    assert (summary.written, summary.kept) == (12, 12)
    corrupt_folder(cifar, tmp_path / "straight", ["fog", "contrast"], [1, 2])
    assert contents(target) == contents(tmp_path / "straight")


def test_arrays_from_elsewhere_are_kept(cifar: Path, tmp_path: Path) -> None:
    target = tmp_path / "c"
    target.mkdir()
    np.save(target / "fog.npy", np.ones((30, 32, 32, 3), dtype=np.uint8))
    assert corrupt_folder(cifar, target, "fog").kept == 30
    assert (np.load(target / "fog.npy") == 1).all()


def test_image_layout(tree: Path, tmp_path: Path) -> None:
    target = tmp_path / "c"
    summary = corrupt_folder(tree, target, ["contrast", "fog"], [1, 5])
    assert (summary.layout, summary.written, summary.unreadable) == ("images", 16, [])
    sources = [name for name in contents(tree) if not name.endswith(".txt")]
    expected = {
        f"{name}/{severity}/{file}"
        for name in ("contrast", "fog")
        for severity in (1, 5)
        for file in sources
    }
    assert set(contents(target)) == expected | {"severities.json"}
    for file in sources:
        clean, result = read_rgb(tree / file), read_rgb(target / "contrast" / "5" / file)
        exact = corrupt(clean[None], "contrast", 5)[0]
        if file.lower().endswith(("png", "bmp")):
            np.testing.assert_array_equal(result, exact)
        else:  # JPEG at quality 95
            assert np.abs(result.astype(int) - exact).mean() < 3
    assert corrupt_folder(tree, target, ["contrast", "fog"], [1, 5]).kept == 16


def test_images_can_come_and_go(tree: Path, tmp_path: Path) -> None:
    corrupt_folder(tree, tmp_path / "all", "gaussian_noise", [1, 2])
    before = contents(tmp_path / "all")
    (tmp_path / "all" / "gaussian_noise" / "2" / "art" / "dog" / "2.png").unlink()
    summary = corrupt_folder(tree, tmp_path / "all", "gaussian_noise", [1, 2])
    assert (summary.written, summary.kept) == (1, 7)
    assert contents(tmp_path / "all") == before
    (tree / "art" / "dog" / "1.jpg").unlink()
    corrupt_folder(tree, tmp_path / "fewer", "gaussian_noise", [1, 2])
    fewer = contents(tmp_path / "fewer")
    assert len(fewer) == len(before) - 2
    assert all(before[name] == value for name, value in fewer.items())


@pytest.mark.slow
def test_any_number_of_jobs_gives_the_same_bytes(cifar: Path, tree: Path, tmp_path: Path) -> None:
    names = ["gaussian_noise", "glass_blur", "motion_blur", "elastic_transform", "defocus_blur"]
    for source in (cifar, tree):
        for jobs in (1, 2):
            target = tmp_path / f"{source.name}-{jobs}"
            corrupt_folder(source, target, names, [1, 5], jobs=jobs)
        one, two = (contents(tmp_path / f"{source.name}-{jobs}") for jobs in (1, 2))
        assert one == two


def test_unreadable_images(tree: Path, tmp_path: Path) -> None:
    broken = tree / "art" / "dog" / "1.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    with pytest.raises(DataError, match=r"1\.jpg.*errors='skip'"):
        corrupt_folder(tree, tmp_path / "a", "contrast", 1)
    steps: list[tuple[int, int]] = []
    summary = corrupt_folder(
        tree,
        tmp_path / "b",
        "contrast",
        1,
        errors="skip",
        progress=lambda *now: steps.append(now),
    )
    assert summary.written == 3
    assert len(summary.unreadable) == 1
    assert summary.unreadable[0].startswith(f"{broken}: ")
    assert steps[-1] == (4, 4)
    assert not (tmp_path / "b" / "contrast" / "1" / "art" / "dog" / "1.jpg").exists()


def test_another_seed_is_not_mixed_in(cifar: Path, tree: Path, tmp_path: Path) -> None:
    for number, source in enumerate((cifar, tree)):
        target = tmp_path / str(number)
        corrupt_folder(source, target, "contrast", 1, seed=0)
        with pytest.raises(DataError, match="'seed': 0"):
            corrupt_folder(source, target, "contrast", 2, seed=1)
        (target / "severities.json").write_text("{")
        with pytest.raises(DataError, match="damaged"):
            corrupt_folder(source, target, "contrast", 2)


def test_damaged_arrays_are_refused(cifar: Path, tmp_path: Path) -> None:
    target = tmp_path / "c"
    corrupt_folder(cifar, target, "contrast", 1)
    path = target / "contrast.npy"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DataError, match=r"contrast\.npy is damaged"):
        corrupt_folder(cifar, target, "contrast", 2)
    np.save(path, np.zeros((7, 32, 32, 3), dtype=np.uint8))
    with pytest.raises(DataError, match="five severities of 6 images"):
        corrupt_folder(cifar, target, "contrast", 2)


def test_wrong_requests(cifar: Path, tree: Path, tmp_path: Path) -> None:
    target = tmp_path / "c"
    (tmp_path / "empty").mkdir()
    everything: dict[str, Any] = {"src": tree, "dst": target}
    for error, message, options in (
        (DataError, "no folder", {"src": tmp_path / "nowhere"}),
        (DataError, "neither a CIFAR test batch", {"src": tmp_path / "empty"}),
        (ConfigError, "inside", {"dst": tree / "corrupted"}),
        (ConfigError, "is a file", {"dst": cifar / "test_batch"}),
        (ConfigError, "unknown corruption 'fogg'", {"corruptions": "fogg"}),
        (ConfigError, "empty list", {"corruptions": []}),
        *((ConfigError, "severity=", {"severities": s}) for s in ([], 0, 6, [2.5], [True])),
        (ConfigError, "jobs", {"jobs": 0}),
        (ConfigError, "errors", {"errors": "ignore"}),
        (ConfigError, "mnist", {"constants": "mnist"}),
    ):
        with pytest.raises(error, match=message):
            corrupt_folder(**{**everything, **options})
    assert not target.exists()
    assert corrupt_folder(cifar, target, ["extra", "saturate"], 1).written == 4 * 6
