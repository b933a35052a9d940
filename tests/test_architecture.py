"""docs/architecture.md says what is there: files, layers, the way of a batch."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import fretta
from fretta.cli import app
from fretta.experiment.run import execute
from fretta.experiment.store import Store
from fretta.experiment.suite import load_suite
from test_package import LAYERS

SOURCE = Path(fretta.__file__).parent
PAGE = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text(encoding="utf-8")


def documented(name: str) -> list[str]:
    block = re.search(rf"<!-- trace: {name} -->\n(.*?)<!-- /trace -->", PAGE, re.S)
    assert block
    return re.findall(r"^\d+\. `([\w/]+)`", block[1], re.M)


def modules_of_one_batch(work: Callable[[], Any], number: int) -> set[str]:
    """What is entered from the moment the adapter gets batch `number` until it gets the next."""
    seen, batch, prefix = set(), 0, f"{SOURCE}/"

    def enter(frame: FrameType, event: str, _: Any) -> None:
        nonlocal batch
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(prefix):
            name = file.removeprefix(prefix).removesuffix(".py")
            batch += name == "adapter" and frame.f_code.co_name == "forward"
            if batch == number:
                seen.add(name)
            elif batch > number:
                sys.setprofile(None)  # seen enough

    before = sys.getprofile()
    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        work()
    finally:
        sys.setprofile(before)
        threading.setprofile(before)
    return seen


def check_trace(name: str, seen: set[str]) -> None:
    trace = documented(name)
    assert len(trace) == len(set(trace)) <= 15
    assert set(trace) <= seen


def test_one_batch_of_run(tmp_path: Path) -> None:
    (job,) = load_suite("digits").restricted(["tent"], [0], 16).jobs(None)
    store = Store(str(tmp_path))
    check_trace("run", modules_of_one_batch(lambda: execute(job, store), 2))


def test_one_batch_of_adapt(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    pixels = np.random.RandomState(0).randint(256, size=(160, 32, 32, 3), dtype=np.uint8)
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / "images" / f"{number}.png")
    line = ["adapt", "--model", "digits", "--data", str(tmp_path / "images"), "--method", "tent"]
    line += ["--batch-size", "16", "--no-shuffle", "--out", str(tmp_path / "out")]
    seen = modules_of_one_batch(
        lambda: CliRunner().invoke(app, line, catch_exceptions=False), number=2
    )
    check_trace("adapt", seen)


def test_the_tree_names_files_that_exist() -> None:
    tree = re.search(r"```\nsrc/fretta/\n(.*?)```", PAGE, re.S)
    assert tree
    folder = SOURCE
    for line in tree[1].splitlines():
        names = re.findall(r"(?<![\w/.*])([\w/]+(?:\.py|/))(?![\w*])", line)
        if not line.startswith("    "):
            folder = SOURCE / names[0] if names[0].endswith("/") else SOURCE
            names = [name for name in names if folder == SOURCE or name != names[0]]
        assert folder.is_dir()
        assert all((folder / name).exists() for name in names), line


def test_the_layers_are_drawn() -> None:
    drawn = re.search(r"```\n(errors  memory\n.*?)```", PAGE, re.S)
    assert drawn
    assert [line.split() for line in drawn[1].splitlines()] == LAYERS[:-1]  # but __main__


@pytest.mark.parametrize("name", ["run", "adapt"])
def test_the_trace_names_modules(name: str) -> None:
    assert all((SOURCE / f"{module}.py").is_file() for module in documented(name))
