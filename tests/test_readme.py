"""The README's examples, run as written, and their printed output compared."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

import fretta

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.S)


def run(code: str, names: dict[str, object]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), names)
    return printed.getvalue()


@pytest.mark.filterwarnings("ignore:.*frost:fretta.errors.FrettaWarning")
def test_ten_lines_print_what_the_readme_says() -> None:
    index = next(i for i, (_, text) in enumerate(BLOCKS) if text.startswith("import fretta"))
    code, expected = BLOCKS[index][1], BLOCKS[index + 1][1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 11
    printed = run(code, {})
    assert [line.split()[0] for line in printed.splitlines()] == [
        line.split()[0] for line in expected.splitlines()
    ]
    for ours, theirs in zip(printed.splitlines(), expected.splitlines(), strict=True):
        seen, said = (float(line.split()[1].rstrip("%")) for line in (ours, theirs))
        assert seen == pytest.approx(said, abs=0.3)  # other processors round differently


def test_the_api_block() -> None:
    code = next(text for _, text in BLOCKS if text.startswith("adapter = fretta.adapt"))
    model, _ = fretta.models.load_source("digits")
    names = {
        "fretta": fretta,
        "model": model,
        "x": torch.randn(8, 3, 32, 32),
        "z": torch.rand(8, 4),
    }
    run(code, names)
    assert names["logits"].shape == (8, 10)  # type: ignore[attr-defined]


def test_the_method_table_is_the_catalogue() -> None:
    rows = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \|(.*)\|$", README, re.M)
    table = {name: cells for names, cells in rows for name in re.findall(r"`([a-z-]+)`", names)}
    assert sorted(n for n in table if n in fretta.list_methods()) == fretta.list_methods()
    for name in fretta.list_methods():
        method = fretta.methods.REGISTRY[name]
        cells = [cell.strip() for cell in table[name].split("|")]
        assert method.passes in cells
        assert method.timing in cells
        assert ", ".join(method.variants) in cells


def test_the_corruption_block() -> None:
    import numpy as np

    code = next(text for _, text in BLOCKS if text.startswith("from fretta.corruptions"))
    head = code.split("pacs =")[0]  # the rest needs PACS on disk
    names: dict[str, object] = {"images_uint8": np.full((2, 32, 32, 3), 90, dtype=np.uint8)}
    run(head, names)
    assert names["foggy"].shape == (2, 32, 32, 3)  # type: ignore[attr-defined]
