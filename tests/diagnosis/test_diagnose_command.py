"""`fretta diagnose` and `fretta.diagnose` as a user calls them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fretta as library
from commands import fretta
from fretta.data import Preprocessing, open_dataset
from fretta.models import load_source
from screens import check_screens, js

INPUT = ("--size", "16", "--mean", "0.5,0.5,0.5", "--std", "0.25,0.25,0.25")


def save_digits(folder: Path, rows: range, **shift: object) -> Path:
    domain = open_dataset("digits", **{"corruption": None, **shift}).domains[0]
    folder.mkdir(parents=True, exist_ok=True)
    for row, pixels in zip(rows, domain.read(list(rows)), strict=True):
        Image.fromarray(pixels).save(folder / f"{row:03d}.png")
    return folder


def kinds(out: Path) -> list[str]:
    return [a["kind"] for a in json.loads((out / "diagnose.json").read_text())["advice"]]


def test_a_folder_of_shifted_digits(tmp_path: Path) -> None:
    images = save_digits(tmp_path / "images", range(68), corruption="contrast")
    (images / "<b>broken.png").write_bytes(b"no image")
    (images / "empty.png").touch()
    shutil.copy(images / "003.png", images / "003 copy.png")
    out = tmp_path / "out"
    done = fretta("diagnose", "--model", "digits", "--data", images, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "Shifted: try the default method." in done.stdout
    assert "empty.png': the file is empty" in done.stdout
    found = json.loads((out / "diagnose.json").read_text())
    facts = found["facts"]
    assert facts["images"] == 69
    assert facts["files"]["files"] == 71
    assert facts["files"]["sizes"] == {"32×32": 69}
    assert facts["files"]["gray"] == 69
    assert ["003 copy.png", "003.png"] in facts["files"]["groups"]
    assert {name for name, _ in facts["files"]["unreadable"]} == {"<b>broken.png", "empty.png"}
    assert facts["moved"] > 0.5
    assert sum(facts["outputs"]["predicted"]) == 69
    assert len(found["moved_most"]) == 24
    page = (out / "diagnose.html").read_text()
    assert "&lt;b&gt;broken.png" in page
    assert "<b>broken" not in page
    sources = re.findall(r'src="([^"]*)"', page)
    assert len(sources) == 24
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)
    assert "http" not in page.replace("http-equiv", "")
    assert not re.search("<(script|link|iframe)", page)


def test_source_images_are_compared_with(tmp_path: Path) -> None:
    images = save_digits(tmp_path / "images", range(64))
    source = save_digits(tmp_path / "source", range(64, 192), split="train")
    out = tmp_path / "out"
    line = ["diagnose", "--model", "digits", "--data", images, "--source-data", source]
    done = fretta(*line, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "Nothing shifted: do not adapt." in done.stdout
    facts = json.loads((out / "diagnose.json").read_text())["facts"]
    assert facts["source"]["images"] == 128
    assert abs(facts["moved"] - facts["source_moved"]) < 0.05
    assert facts["source"]["redundancy"] == pytest.approx(facts["outputs"]["redundancy"], abs=0.1)
    assert "<th>source images</th>" in (out / "diagnose.html").read_text()


def test_a_data_set_and_a_prior(tmp_path: Path) -> None:
    line = ["diagnose", "--model", "digits", "--data", "digits", "--domain", "fog"]
    done = fretta(*line, "--limit", "64", "--batch-size", "8", "--prior", "8=0.9")
    assert done.returncode == 0, done.stderr
    assert "expected 90.0 %" in done.stdout or "expected 1.1 %" in done.stdout
    assert "Batches of 8 are small." in done.stdout
    assert fretta(*line, "--prior", "cat=0.9").returncode == 2


def test_unreadable_images_of_a_data_set_are_counted(tmp_path: Path) -> None:
    images = tmp_path / "images"
    for number, name in enumerate("abcd"):
        save_digits(images / name, range(9 * number, 9 * number + 9))
    (images / "b" / "broken.png").write_bytes(b"no image")
    line = ["diagnose", "--model", "diagnosis_nets:group_norm", *INPUT, "--data", "folder"]
    done = fretta(*line, "--root", images, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "out" / "diagnose.json").read_text())["facts"]
    assert (facts["images"], facts["files"]["files"]) == (36, 37)
    ((name, why),) = facts["files"]["unreadable"]
    assert name == str(images / "b" / "broken.png")
    assert not why.startswith("unreadable image")


@pytest.mark.parametrize("name", ["group_norm", "without_norm", "thousand"])
def test_any_model(name: str, tmp_path: Path) -> None:
    images = save_digits(tmp_path / "images", range(34))
    out = tmp_path / "out"
    line = ["diagnose", "--model", f"diagnosis_nets:{name}", *INPUT, "--data", images]
    done = fretta(*line, "--out", out)
    assert done.returncode == 0, done.stderr
    if name == "thousand":
        assert json.loads((out / "diagnose.json").read_text())["facts"]["classes"] == 1000
    else:
        assert kinds(out)[:1] == ["cannot-tell"]
        assert "no-batch-norm" in kinds(out)
        assert "--source-data" in done.stdout
        with_source = fretta(*line, "--source-data", images, "--out", out)
        assert with_source.returncode == 0, with_source.stderr
        assert kinds(out)[0] == ("do-not-adapt" if name == "group_norm" else "cannot-tell")


def test_what_cannot_be_diagnosed(tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    line = ["diagnose", "--model", "digits", "--data", images]
    empty = fretta(*line)
    assert empty.returncode == 2
    assert "no images in" in empty.stderr
    (images / "a.png").write_bytes(b"no image")
    broken = fretta(*line)
    assert broken.returncode == 2
    assert "none of 1 files can be read" in broken.stderr
    save_digits(images, range(1))
    single = fretta(*line, "--out", tmp_path / "out")
    assert single.returncode == 0, single.stderr
    assert "Too few images to tell." in single.stdout
    absent = fretta("diagnose", "--model", "digits", "--data", tmp_path / "nowhere")
    assert absent.returncode == 2


def test_images_of_one_channel_and_of_other_shapes(tmp_path: Path) -> None:
    random = np.random.RandomState(0)
    for number, shape in enumerate([(16, 40), (40, 16), (20, 20)] * 12):
        pixels = random.randint(256, size=shape, dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    out = tmp_path / "out"
    done = fretta("diagnose", "--model", "digits", "--data", tmp_path, "--out", out)
    assert done.returncode == 0, done.stderr
    sizes = json.loads((out / "diagnose.json").read_text())["facts"]["files"]["sizes"]
    assert sizes == {"40×16": 12, "16×40": 12, "20×20": 12}
    page = (out / "diagnose.html").read_text()
    assert "33.3 % wide" in page
    assert "33.3 % tall" in page


def test_in_python(tmp_path: Path) -> None:
    model, card = load_source("digits")
    preprocessing = Preprocessing.from_json(card.preprocessing)

    def images(**shift: object) -> torch.Tensor:
        domain = open_dataset("digits", **shift).domains[0]
        pixels = domain.read(list(range(128))).transpose(0, 3, 1, 2)
        return preprocessing.apply(torch.from_numpy(pixels.copy()))

    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    clean = library.diagnose(model, images(corruption=None))
    assert clean.advice[0].kind == "do-not-adapt"
    x = images(corruption="fog")
    shifted = library.diagnose(model, [(part, None) for part in x.split(64)])
    assert shifted.advice[0].kind == "adapt"
    assert "Shifted: try" in str(shifted)
    assert shifted.facts == library.diagnose(model, x).facts
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    with pytest.raises(library.errors.InputError, match="NaN"):
        library.diagnose(model, x * float("nan"))
    with pytest.raises(library.errors.DataError, match="no image"):
        library.diagnose(model, [])


@pytest.mark.browser
def test_the_page_on_screens(tmp_path: Path, browser: Any) -> None:
    images = save_digits(tmp_path / "images", range(68), corruption="contrast")
    (images / ("long" * 30 + ".png")).write_bytes(b"no image")
    fretta("diagnose", "--model", "digits", "--data", images, "--out", tmp_path / "out")
    check_screens(browser, tmp_path / "out" / "diagnose.html")
    assert js(browser, "[...document.images].filter(i => i.naturalWidth > 0).length") == 24
    assert browser.get_log("browser") == []  # nothing was blocked, nothing is missing
