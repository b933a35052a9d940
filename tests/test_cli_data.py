"""`fretta doctor`, `corrupt` and `train`, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands import fretta
from fretta.cli.data import severities
from fretta.errors import ConfigError


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    generator = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for i in range(2):
            pixels = generator.integers(0, 255, (40, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.jpg")
    return folder


def test_severities() -> None:
    assert severities("1-5") == [1, 2, 3, 4, 5]
    assert severities("1,3") == [1, 3]
    assert severities("5") == [5]
    with pytest.raises(ConfigError, match="write 5, 1,3 or 1-5"):
        severities("high")


def test_doctor(tmp_path: Path) -> None:
    out = fretta("doctor", "digits", cwd=tmp_path)
    assert out.returncode == 0
    assert "digits: 0 errors" in out.stdout
    out = fretta("doctor", "pacs", "--data", tmp_path, cwd=tmp_path)
    assert out.returncode == 1
    assert str(tmp_path) in "".join(out.stdout.split("\n"))


def test_corrupt(pictures: Path, tmp_path: Path) -> None:
    arguments = (
        "corrupt",
        "pictures",
        "shifted",
        "--corruption",
        "fog,contrast",
        "--severity",
        "1,5",
    )
    out = fretta(*arguments, cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    assert "16 images written, 0 already there" in out.stdout
    assert len(list((tmp_path / "shifted").rglob("*.jpg"))) == 16
    assert (tmp_path / "shifted" / "fog" / "5" / "cat" / "0.jpg").is_file()
    assert "0 images written, 16 already there" in fretta(*arguments, cwd=tmp_path).stdout
    (pictures / "cat" / "2.jpg").write_bytes(b"no image")
    broken = fretta(*arguments, cwd=tmp_path)
    assert broken.returncode == 2
    assert "2.jpg" in broken.stderr
    skipped = fretta(*arguments, "--skip-unreadable", cwd=tmp_path)
    assert skipped.returncode == 0
    assert "unreadable, left out" in skipped.stdout


def test_train_writes_weights_and_a_card_and_can_be_repeated(tmp_path: Path) -> None:
    arguments = ("train", "digits", "--out", "d.safetensors", "--epochs", 1, "--limit", 64)
    out = fretta(*arguments, cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    card = json.loads((tmp_path / "d.json").read_text())
    assert card["num_classes"] == 10
    assert card["preprocessing"]["size"] == 32
    weights = (tmp_path / "d.safetensors").read_bytes()
    assert fretta(*arguments, cwd=tmp_path).returncode == 0  # finished: nothing to do
    assert (tmp_path / "d.safetensors").read_bytes() == weights
    check = fretta(
        "evaluate",
        "--model",
        "d.safetensors",
        "--data",
        "digits",
        "--method",
        "source",
        "--limit",
        16,
        "--domain",
        "fog",
        cwd=tmp_path,
    )
    assert check.returncode == 0, check.stderr
    wrong = fretta("train", "pacs", "--out", "p.safetensors", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "target" in wrong.stderr
