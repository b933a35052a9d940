"""docs/reproduce.md, docs/extend.md and docs/benchmark.md, run as written."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from suite_world import run_count

from fretta.experiment.store import Store
from fretta.experiment.suite import list_suites, load_suite

ROOT = Path(__file__).parents[2]


@dataclass
class Block:
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """A block whose first line is a comment with a file name is that file."""
        found = re.match(r"# (\S+\.(?:py|toml))\n", self.text)
        return found[1] if found else None


def blocks(page: str, section: str | None = None) -> list[Block]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    if section is not None:
        text = re.split(r"^## ", text.partition(f"\n## {section}\n")[2], flags=re.M)[0]
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)
    assert found, f"no blocks in {page} {section}"
    return [Block(*pair) for pair in found]


def execute(page: list[Block], folder: Path, terminal: Any) -> list[str]:
    """Every block in order: files are written, commands and snippets run. Returns what they say."""
    printed = []
    for block in page:
        if block.file is not None:
            (folder / block.file).write_text(block.text)
        elif block.language == "sh":
            subprocess.run(["bash", "-n", "-c", block.text], check=True)  # a shell can read it
            printed.append(terminal(block.text))
        elif block.language == "toml":  # a part of the reader's own pyproject.toml
            tomllib.loads(block.text)
        else:
            assert block.language == "python", block
            code = compile(block.text, "<a block of the page>", "exec")
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(code, {"__name__": "__main__"})
            printed.append(out.getvalue())
    return printed


def test_reproduce_without_data(tmp_path: Path, terminal: Any) -> None:
    printed = execute(blocks("reproduce.md", "Without any data"), tmp_path, terminal)
    assert len(Store(tmp_path / "results").keys()) == 4 + 2 * 2
    header = (tmp_path / "accuracy.csv").read_text().splitlines()[0]
    assert header.startswith("suite,case,method,setting,seeds")
    assert "4 runs, 4 were there already" in printed[-1]


def test_every_suite_has_its_row() -> None:
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    listed: dict[str, int] = {}
    for row in rows:
        names = re.findall(r"`([^`]+)`", row[1])
        counts = [int(n.replace(",", "")) for n in re.findall(r"\d+(?:,\d{3})*", row[-2])]
        listed |= dict(zip(names, counts * (len(names) if len(counts) == 1 else 1), strict=True))
    assert sorted(listed) == list_suites()
    for name, count in listed.items():
        assert count == run_count(load_suite(name)), name


@pytest.mark.usefixtures("trained")
def test_reproduce_with_data(tmp_path: Path, terminal: Any, small_world: Any) -> None:
    root = tmp_path / "data"
    root.mkdir()
    small_world(root, load_suite("pacs").cases)
    for file in (root / "weights").iterdir():  # the page makes the one it needs
        file.unlink()
    execute(blocks("reproduce.md", "With the data"), tmp_path, terminal)
    records = list(Store(tmp_path / "results").records())
    labels = {"source", "bn", "g-fret", "g-fret (released)"}
    assert {r.tags["label"] for r in records} == labels
    assert all(r.status == "done" for r in records)
    assert len((tmp_path / "pacs.csv").read_text().splitlines()) == 1 + len(labels)


@pytest.mark.usefixtures("trained")
def test_reproduce_cifar_from_clean_images(
    tmp_path: Path, terminal: Any, small_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_world(tmp_path, load_suite("cifar10c-shared").cases)
    monkeypatch.setenv("FRETTA_DATA", str(tmp_path))
    execute(blocks("reproduce.md", "CIFAR-10-C from clean CIFAR-10"), tmp_path, terminal)
    records = list(Store(tmp_path / "results").records())
    assert all(r.status == "done" and len(r.rows) == 15 for r in records)
    titles = {"source", "bn", "eata", "g-fret lam=0.1", "g-fret lam=1"}
    assert {r.tags["label"] for r in records} == titles


@pytest.mark.slow
def test_extend(tmp_path: Path, terminal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))  # as for a script in the same folder
    for name in ("pseudo", "inverted", "my_nets"):  # forgotten afterwards
        monkeypatch.setitem(sys.modules, name, sys)
        monkeypatch.delitem(sys.modules, name)
    execute(blocks("extend.md"), tmp_path, terminal)
    records = list(Store(tmp_path / "results").records())
    assert all(r.status == "done" for r in records)
    seen = {(r.tags["suite"], r.tags["label"]) for r in records}
    expected = {("smoke", "pseudo:Pseudo"), ("mine", "bn alpha=0.5"), ("evaluate", "tent")}
    assert expected | {("bare", "g-fret")} <= seen
    # The network of the page learned something: better than guessing among ten.
    assert max(r.overall["accuracy"] for r in records if r.tags["suite"] == "bare") > 0.3


@pytest.mark.slow
def test_benchmark(tmp_path: Path, terminal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "surer", sys)  # forgotten afterwards
    monkeypatch.delitem(sys.modules, "surer")
    printed = execute(blocks("benchmark.md"), tmp_path, terminal)
    assert "share" in printed[0]  # fretta info, of a file of the reader's
    records = [r for r in Store(tmp_path / "results").records() if r.tags["suite"] == "mine"]
    assert len(records) == 3 * 3 * 6
    assert all(r.status == "done" for r in records)
    mean: dict[tuple[str, str], float] = {}
    for r in records:
        place = r.tags["case"], r.tags["label"]
        mean[place] = mean.get(place, 0.0) + 100 * r.overall["mean_over_domains"] / 3
    for case in {case for case, _ in mean}:  # as the page says
        for other in ("tent", "bn"):
            assert abs(mean[case, "surer:Surer share=0.5"] - mean[case, other]) < 2
    assert mean["class after class", "auto"] < mean["class after class", "bn"] - 10
    assert (tmp_path / "report" / "index.html").is_file()
