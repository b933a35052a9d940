"""The README's examples, run as a reader pastes them, and their printed output compared."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import fretta
from pages import ROOT, blocks, paste, python_blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore:.*frost:fretta.errors.FrettaWarning")
def test_every_block_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, *others = python_blocks("README.md")
    assert len([line for line in first.text.splitlines() if line.strip()]) <= 11
    names: dict[str, object] = {}
    compare(paste(first, names), next(b.text for b in blocks("README.md") if b.language == "text"))
    for block in others:
        paste(block, names)


def test_it_is_short() -> None:
    """Words; the numbers of a table are none."""
    lines = [line for line in README.splitlines() if not line.startswith("|")]
    assert len(" ".join(lines).split()) <= 800


def compare(printed: str, expected: str) -> None:
    assert [line.split()[0] for line in printed.splitlines()] == [
        line.split()[0] for line in expected.splitlines()
    ]
    for ours, theirs in zip(printed.splitlines(), expected.splitlines(), strict=True):
        seen, wanted = (float(line.split()[1].rstrip("%")) for line in (ours, theirs))
        assert seen == pytest.approx(wanted, abs=0.3)  # other processors round differently


@pytest.mark.parametrize("page", ["README.md", "docs/methods.md"])
def test_the_method_table_is_the_catalog(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    catalog = text.partition("\n| name | ")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ((?:`[a-z0-9-]+`(?:, )?)+) \|(.*)\|$", catalog, re.M)
    table = {name: cells for names, cells in rows for name in re.findall(r"`([a-z0-9-]+)`", names)}
    if page == "README.md":  # some of them; the page that it points to has them all
        assert set(table) < set(fretta.list_methods())
        assert f"{len(fretta.list_methods()) - len(table)} more" in text
    else:
        assert sorted(table) == fretta.list_methods()
    for name in table:
        method = fretta.methods.REGISTRY[name]
        cells = [cell.strip() for cell in table[name].split("|")]
        assert method.passes in cells
        if page != "README.md":
            assert method.timing in cells
            assert ", ".join(method.variants) in cells


@pytest.mark.slow
def test_the_commands_of_benchmarks_in_an_empty_folder(tmp_path: Path) -> None:
    block = next(b for b in blocks("README.md") if b.text.startswith("fretta run digits"))
    environment = {**os.environ, "PYTHONPATH": str(Path(fretta.__file__).parents[1])}
    for line in block.text.splitlines():
        name, *words = shlex.split(line, comments=True)
        assert name == "fretta"
        done = subprocess.run(
            [sys.executable, "-m", "fretta.cli", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert (tmp_path / "report" / "index.html").is_file()
