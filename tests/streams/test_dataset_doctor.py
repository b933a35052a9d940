"""The doctor: reports, never raises for bad data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fretta.errors import ConfigError
from fretta.streams import Report, doctor, list_datasets

Tree = Callable[..., Path]


def texts(report: Report, level: str) -> str:
    return "\n".join(f.text for f in report.findings if f.level == level)


def test_pacs_with_missing_domains_and_a_broken_image(pacs: Path) -> None:
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
    assert report.lines()[-1] == "pacs: 1 errors, 4 warnings"
    assert any(line.startswith("error photo: 14 of 14") for line in report.lines())
    assert json.loads(json.dumps(report.to_json()))["ok"] is False


def test_decoding_can_be_sampled_or_left_out(pacs: Path) -> None:
    assert "photo: 3 of 14 images decoded" in texts(doctor("pacs", pacs, images=3), "ok")
    assert "photo: 0 of 14 images decoded" in texts(doctor("pacs", pacs, images=0), "ok")


def test_pacs_with_other_classes(pacs: Path) -> None:
    (pacs / "PACS" / "photo" / "zebra").mkdir()
    (pacs / "PACS" / "cartoon" / "Dog").mkdir()
    report = doctor("pacs", pacs)
    assert "has zebra as well" in texts(report, "error")
    assert "'Dog' and 'dog'" in texts(report, "error")


def test_domainnet_compares_its_domains(tmp_path: Path, tree: Tree) -> None:
    tree(tmp_path, {"real": {"cat": 1, "dog": 1}, "sketch": {"cat": 1, "cow": 1}})
    report = doctor("domainnet", tmp_path)
    assert "real: 2 classes, not 345" in texts(report, "error")
    assert "class names do not match" in texts(report, "error")


@pytest.mark.parametrize("name", [n for n in list_datasets() if n != "digits"])
def test_wrong_root_is_a_finding(name: str, tmp_path: Path) -> None:
    report = doctor(name, tmp_path / "gone")
    assert not report.ok
    assert str(tmp_path / "gone") in texts(report, "error")
    assert "FRETTA_DATA" in texts(doctor(name), "error")


def test_cifar(cifar10: Path) -> None:
    report = doctor("cifar10", cifar10)
    assert report.ok
    assert "data_batch_2: missing" in texts(report, "warn")
    assert "test_batch: 40 images where 10,000 are known" in texts(report, "warn")
    (cifar10 / "cifar-10-batches-py" / "test_batch").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    (cifar10 / "cifar-10-batches-py" / "batches.meta").unlink()
    report = doctor("cifar10", cifar10)
    assert "os.system, which no CIFAR file needs" in texts(report, "error")
    assert "batches.meta" in texts(report, "error")


def test_cifar_c(cifar10c: Path) -> None:
    folder = cifar10c / "CIFAR-10-C"
    (folder / "fog.npy").unlink()
    whole = (folder / "snow.npy").read_bytes()
    (folder / "snow.npy").write_bytes(whole[:-1])
    for name in ("cifar10c", "cifar10c-lt"):
        report = doctor(name, cifar10c)
        assert "fog.npy is missing" in texts(report, "error")
        assert "snow.npy" in texts(report, "error")
        assert "frost: severities 1, 2, 3, 4, 5, 20 images each" in texts(report, "ok")
        assert sum(f.level == "error" for f in report.findings) == 2
    np.save(folder / "labels.npy", np.zeros(3))
    assert "list of integers" in texts(doctor("cifar10c", cifar10c), "error")


def test_imagenet_c(tmp_path: Path, tree: Tree) -> None:
    tree(tmp_path / "fog", {"5": {"n1": 1, "n2": 1}, "4": {"n1": 1, "n3": 1}})
    (tmp_path / "fog" / "3").mkdir()
    report = doctor("imagenetc", tmp_path)
    assert "missing: gaussian_noise" in texts(report, "warn")
    assert "fog/1: missing" in texts(report, "warn")
    assert "'fog/3' is empty" in texts(report, "error")
    assert "class names do not match" in texts(report, "error")


def test_imagenet_c_from_clean_images(tmp_path: Path, tree: Tree) -> None:
    tree(tmp_path / "imagenet", {"": {"n1": 1, "n2": 1}})
    report = doctor("imagenetc", tmp_path)
    assert report.ok
    assert "made on the fly" in texts(report, "ok")
    assert "clean: 2 images, 2 classes" in texts(report, "warn")


def test_folder_and_digits(tmp_path: Path, tree: Tree) -> None:
    tree(tmp_path, {"day": {"cat": 1, "dog": 1}, "night": {"cat": 0, "dog": 1}})
    report = doctor("folder", tmp_path, layout="domains")
    assert report.ok
    assert "night: 1 images, none of cat" in texts(report, "warn")
    assert "test: 540 images" in texts(doctor("digits"), "ok")
    with pytest.raises(ConfigError, match="takes no option splat"):
        doctor("folder", tmp_path, splat=1)
    with pytest.raises(ConfigError, match="unknown data set"):
        doctor("nothing")
