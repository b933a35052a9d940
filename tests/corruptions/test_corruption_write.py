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
from fretta.data.images import Decoding, decode
from fretta.errors import ConfigError, DataError

LABELS = [3, 1, 4, 1, 5, 9]


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    data = make_pictures(6, 32, 32).transpose(0, 3, 1, 2).reshape(6, -1)
    (folder / "test_batch").write_bytes(pickle.dumps({b"data": data, b"labels": LABELS}, 2))
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
    target = tmp_path / "c"
    steps: list[tuple[int, int]] = []
    summary = corrupt_folder(
        cifar, target, ["fog", "contrast"], seed=2, progress=lambda *now: steps.append(now)
    )
    assert (summary.layout, summary.written, summary.kept) == ("cifar", 60, 0)
    assert steps[-1] == (60, 60)
    assert list(contents(target)) == ["contrast.npy", "fog.npy", "labels.npy", "severities.json"]
    np.testing.assert_array_equal(np.load(target / "labels.npy"), LABELS * 5)
    array = np.load(target / "fog.npy")
    assert array.shape == (30, 32, 32, 3)
    for severity in (1, 5):
        block = array[(severity - 1) * 6 : severity * 6]
        expected = corrupt(make_pictures(6, 32, 32), "fog", severity, seed=2)
        np.testing.assert_array_equal(block, expected)


def test_continuing(cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part, names = tmp_path / "part", ["fog", "contrast"]
    corrupt_folder(cifar, part, "fog", 5)
    assert json.loads((part / "severities.json").read_text())["complete"] == {"fog": [5]}
    assert not np.load(part / "fog.npy")[:24].any()  # room for severities 1 to 4
    calls = []

    def failing(*args: Any, **named: Any) -> object:
        calls.append(args[1])
        if len(calls) == 6:
            raise KeyboardInterrupt
        return corrupt(*args, **named)

    monkeypatch.setattr(write, "corrupt", failing)
    with pytest.raises(KeyboardInterrupt):
        corrupt_folder(cifar, part, names)
    # fog is complete; contrast was interrupted and left nothing behind
    assert list(contents(part)) == ["fog.npy", "labels.npy", "severities.json"]
    monkeypatch.undo()
    for written, kept in ((30, 30), (0, 60)):
        summary = corrupt_folder(cifar, part, names)
        assert (summary.written, summary.kept) == (written, kept)
    corrupt_folder(cifar, tmp_path / "straight", names)
    assert contents(part) == contents(tmp_path / "straight")
    other = tmp_path / "other"  # an array from elsewhere is kept
    other.mkdir()
    np.save(other / "fog.npy", np.ones((30, 32, 32, 3), dtype=np.uint8))
    assert corrupt_folder(cifar, other, "fog").kept == 30
    assert (np.load(other / "fog.npy") == 1).all()


def test_image_layout(tree: Path, tmp_path: Path) -> None:
    target, names = tmp_path / "c", ["contrast", "gaussian_noise"]
    summary = corrupt_folder(tree, target, names, [1, 5])
    assert (summary.layout, summary.written, summary.unreadable) == ("images", 16, [])
    sources = [name for name in contents(tree) if not name.endswith(".txt")]
    expected = {f"{name}/{s}/{file}" for name in names for s in (1, 5) for file in sources}
    before = contents(target)
    assert set(before) == expected | {"severities.json"}
    made = {"layout": "images", "seed": 0, "constants": None}
    assert json.loads(before["severities.json"]) == made
    for file in sources:
        clean, result = read_rgb(tree / file), read_rgb(target / "contrast" / "5" / file)
        exact = corrupt(clean[None], "contrast", 5)[0]
        if file.lower().endswith(("png", "bmp")):
            np.testing.assert_array_equal(result, exact)
        else:  # JPEG at quality 95
            assert np.abs(result.astype(int) - exact).mean() < 3
    (target / "gaussian_noise" / "1" / "art" / "dog" / "2.png").unlink()
    summary = corrupt_folder(tree, target, names, [1, 5])
    assert (summary.written, summary.kept) == (1, 15)
    assert contents(target) == before
    (tree / "art" / "dog" / "1.jpg").unlink()  # images may come and go
    corrupt_folder(tree, tmp_path / "fewer", names, [1, 5])
    fewer = contents(tmp_path / "fewer")
    assert len(fewer) == len(before) - 4
    assert all(before[name] == value for name, value in fewer.items())


def test_the_orientation_is_kept(tmp_path: Path) -> None:
    """The pixels stay as they lie, and the copy says how to turn them, as its source does."""
    folder, exif = tmp_path / "phone", Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    folder.mkdir()
    for name in ("a.jpg", "b.png", "c.webp", "d.tif"):
        Image.fromarray(make_pictures(1, 40, 50)[0]).save(folder / name, exif=exif)
    corrupt_folder(folder, tmp_path / "c", "contrast", 1)
    for source in folder.iterdir():
        copy = tmp_path / "c" / "contrast" / "1" / source.name
        for path in (source, copy):
            assert decode(str(path), Decoding(None, exif=True)).shape == (50, 40, 3)
        if copy.suffix == ".png":
            exact = corrupt(read_rgb(source)[None], "contrast", 1)[0]
            np.testing.assert_array_equal(read_rgb(copy), exact)


def test_a_name_that_is_no_utf8(tree: Path, tmp_path: Path) -> None:
    (tree / "art" / "dog" / "2.png").rename(tree / "art" / "\udcff.png")
    assert corrupt_folder(tree, tmp_path / "c", "gaussian_noise", 1).written == 4
    assert (tmp_path / "c" / "gaussian_noise" / "1" / "art" / "\udcff.png").is_file()


@pytest.mark.slow
def test_any_number_of_jobs_gives_the_same_bytes(cifar: Path, tree: Path, tmp_path: Path) -> None:
    names = ["gaussian_noise", "glass_blur", "motion_blur", "elastic_transform", "defocus_blur"]
    for source in (cifar, tree):
        targets = [tmp_path / f"{source.name}-{jobs}" for jobs in (1, 2)]
        for jobs, target in enumerate(targets, 1):
            corrupt_folder(source, target, names, [1, 5], jobs=jobs)
        assert contents(targets[0]) == contents(targets[1])


def test_unreadable_images(tree: Path, tmp_path: Path) -> None:
    broken = tree / "art" / "dog" / "1.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    with pytest.raises(DataError, match=r"1\.jpg.*errors='skip'"):
        corrupt_folder(tree, tmp_path / "a", "contrast", 1)
    steps: list[tuple[int, int]] = []
    summary = corrupt_folder(
        *(tree, tmp_path / "b", "contrast", 1),
        errors="skip",
        progress=lambda *now: steps.append(now),
    )
    assert summary.written == 3
    assert [text.partition(": ")[0] for text in summary.unreadable] == [str(broken)]
    assert steps[-1] == (4, 4)
    assert not (tmp_path / "b" / "contrast" / "1" / "art" / "dog" / "1.jpg").exists()


def test_what_cannot_be_continued(cifar: Path, tree: Path, tmp_path: Path) -> None:
    for number, source in enumerate((cifar, tree)):
        target = tmp_path / str(number)
        corrupt_folder(source, target, "contrast", 1, seed=0)
        with pytest.raises(DataError, match="'seed': 0"):
            corrupt_folder(source, target, "contrast", 2, seed=1)
        (target / "severities.json").write_text("{")
        with pytest.raises(DataError, match="damaged"):
            corrupt_folder(source, target, "contrast", 2)
    corrupt_folder(cifar, tmp_path / "c", "contrast", 1)
    path = tmp_path / "c" / "contrast.npy"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DataError, match=r"contrast\.npy"):
        corrupt_folder(cifar, tmp_path / "c", "contrast", 2)
    np.save(path, np.zeros((7, 32, 32, 3), dtype=np.uint8))
    with pytest.raises(DataError, match=r"\(7, 32, 32, 3\)"):
        corrupt_folder(cifar, tmp_path / "c", "contrast", 2)


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
        (ConfigError, "no corruption", {"corruptions": []}),
        *((ConfigError, "severity=", {"severities": s}) for s in ([], 0, 6, [2.5], [True])),
        (ConfigError, "jobs", {"jobs": 0}),
        (ConfigError, "errors", {"errors": "ignore"}),
        (ConfigError, "mnist", {"constants": "mnist"}),
    ):
        with pytest.raises(error, match=message):
            corrupt_folder(**{**everything, **options})
    assert not target.exists()
    assert corrupt_folder(cifar, target, ["extra", "saturate"], 1).written == 4 * 6
