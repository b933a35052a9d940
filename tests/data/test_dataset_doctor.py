"""The doctor: reports, never raises for bad data."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fretta.data import DoctorReport, doctor, list_datasets
from fretta.errors import ConfigError

Tree = Callable[..., Path]
PARTS = ("decoded", "unreadable", "not tried")


def texts(report: DoctorReport, level: str) -> str:
    return "\n".join(f.text for f in report.findings if f.level == level)


def test_pacs(pacs: Path) -> None:
    broken = pacs / "PACS" / "photo" / "dog" / "001.png"
    broken.write_bytes(b"broken")
    seen: list[tuple[int, int]] = []
    report = doctor("pacs", pacs, progress=lambda done, total: seen.append((done, total)))
    assert not report.ok
    assert str(broken) in texts(report, "error")
    assert "cartoon: 14 of 14 images decoded" in texts(report, "ok")
    assert f"sketch: missing; no folder of that name in {pacs / 'PACS'}" in texts(report, "warn")
    assert "photo: 14 images where 1,670 are known" in texts(report, "warn")
    assert [item.path for item in report.unreadable] == [str(broken)]
    assert seen[-1] == (28, 28)
    assert report.lines()[-1] == "pacs: 1 error, 4 warnings, 1 unreadable image"
    assert "photo: 3 of 14 images decoded" in texts(doctor("pacs", pacs, images=3), "ok")
    (pacs / "PACS" / "photo" / "zebra").mkdir()
    (pacs / "PACS" / "cartoon" / "Dog").mkdir()
    report = doctor("pacs", pacs)
    assert "has zebra as well" in texts(report, "error")
    assert "'Dog' and 'dog'" in texts(report, "error")


def test_the_parts_add_up(tmp_path: Path, tree: Tree) -> None:
    """Decoded, unreadable and untried images are all there are; what else lies there is named."""
    tree(tmp_path, {"day": {"cat": 3, "dog": 2}, "night": {"cat": 2, "dog": 4}})
    (tmp_path / "day" / "cat" / "000.png").write_bytes(b"broken")
    (tmp_path / "night" / "dog" / "empty.jpg").touch()
    (tmp_path / "night" / "dog" / "notes.txt").touch()
    (tmp_path / "night" / "stray.png").write_bytes(b"beside the classes")
    (tmp_path / "night" / ".DS_Store").touch()
    for images in (None, 2, 0):
        report = doctor("folder", tmp_path, layout="domains", images=images)
        lines = [f.text for f in report.findings]
        parts = [numbers(t) for t in lines if "images decoded" in t]
        total = numbers(next(t for t in lines if t.startswith("total: ")))
        assert all(p["all"] == p["decoded"] + p["unreadable"] + p["not tried"] for p in parts)
        assert total == {key: sum(p[key] for p in parts) for key in total}
        assert (total["all"], total["unreadable"]) == (12, len(report.unreadable))
    warned = texts(doctor("folder", tmp_path, layout="domains"), "warn")
    assert re.search(r"1 image left out.*stray\.png", warned)
    assert re.search(r"1 other file left out.*notes\.txt", warned)
    assert "DS_Store" not in warned


def numbers(text: str) -> dict[str, int]:
    found = {n: re.search(rf"(\d+) (?:of \d+ images )?{n}", text) for n in PARTS}
    count = re.search(r"(\d+) images", text)
    assert count
    return {"all": int(count[1]), **{n: int(m[1]) if m else 0 for n, m in found.items()}}


@pytest.mark.parametrize("name", [n for n in list_datasets() if n != "digits"])
def test_wrong_root_is_a_finding(name: str, tmp_path: Path) -> None:
    report = doctor(name, tmp_path / "gone")
    assert not report.ok
    assert str(tmp_path / "gone") in texts(report, "error")
    assert "FRETTA_DATA" in texts(doctor(name), "error")


def test_cifar_and_cifar_c(cifar10: Path, cifar10c: Path) -> None:
    report = doctor("cifar10", cifar10)
    assert report.ok
    assert "data_batch_2: missing" in texts(report, "warn")
    assert "test_batch: 40 images where 10,000 are known, 9,960 fewer" in texts(report, "warn")
    assert re.search(r"total: .*test 40 of 10,000", texts(report, "ok"))
    (cifar10 / "cifar-10-batches-py" / "test_batch").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    (cifar10 / "cifar-10-batches-py" / "batches.meta").unlink()
    report = doctor("cifar10", cifar10)
    assert "os.system, which no CIFAR file needs" in texts(report, "error")
    assert "batches.meta" in texts(report, "error")
    folder = cifar10c / "CIFAR-10-C"
    (folder / "fog.npy").unlink()
    (folder / "snow.npy").write_bytes((folder / "snow.npy").read_bytes()[:-1])
    for name in ("cifar10c", "cifar10c-lt"):
        report = doctor(name, cifar10c)
        assert "fog.npy is missing" in texts(report, "error")
        assert "snow.npy" in texts(report, "error")
        assert "frost: severities 1, 2, 3, 4, 5, 20 images each" in texts(report, "ok")
        assert sum(f.level == "error" for f in report.findings) == 2
    np.save(folder / "labels.npy", np.zeros(3))
    assert "list of integers" in texts(doctor("cifar10c", cifar10c), "error")


def test_imagenet_c_and_domainnet(tmp_path: Path, tree: Tree) -> None:
    tree(tmp_path / "fog", {"5": {"n1": 1, "n2": 1}, "4": {"n1": 1, "n3": 1}})
    (tmp_path / "fog" / "3").mkdir()
    report = doctor("imagenetc", tmp_path)
    assert "missing: gaussian_noise" in texts(report, "warn")
    assert "fog/1: missing" in texts(report, "warn")
    assert "'fog/3' is empty" in texts(report, "error")
    assert "class names do not match" in texts(report, "error")
    tree(tmp_path / "clean" / "imagenet", {"": {"n1": 1, "n2": 1}})
    report = doctor("imagenetc", tmp_path / "clean")
    assert report.ok
    assert "made on the fly" in texts(report, "ok")
    assert "clean: 2 images, 2 classes" in texts(report, "warn")
    tree(tmp_path / "net", {"real": {"cat": 1, "dog": 1}, "sketch": {"cat": 1, "cow": 1}})
    report = doctor("domainnet", tmp_path / "net")
    assert "real: 2 classes, not 345" in texts(report, "error")
    assert "class names do not match" in texts(report, "error")


def test_folder_digits_and_options(tmp_path: Path, tree: Tree) -> None:
    tree(tmp_path, {"day": {"cat": 1, "dog": 1}, "night": {"cat": 0, "dog": 1}})
    report = doctor("folder", tmp_path, layout="domains")
    assert report.ok
    assert "night: 1 image, none of cat" in texts(report, "warn")
    assert "total: 1,797 images" in texts(doctor("digits"), "ok")
    with pytest.raises(ConfigError, match="takes no option splat"):
        doctor("folder", tmp_path, splat=1)
    with pytest.raises(ConfigError, match="unknown data set"):
        doctor("nothing")
