"""The snippets of docs/, pasted in the order of the page, in a folder outside the repository."""

from __future__ import annotations

import ast
import builtins
from pathlib import Path

import pytest

from pages import ROOT, paste, python_blocks

PAGES = sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))
# Tests of their own: test_tutorial.py, test_guides.py; a Ray cluster: test_ray_cluster.py.
ELSEWHERE = {f"docs/{p}.md" for p in ("tutorial", "extend", "benchmark", "reproduce", "ray")}
SLOW = {"docs/analysis.md", "docs/data.md", "docs/guard.md", "docs/tuning.md"}
RUNNABLE = [p for p in PAGES if p not in ELSEWHERE and python_blocks(p)]


def names_in(code: str) -> tuple[set[str], set[str]]:
    """(names it uses, names it brings)."""
    used, brought = set(), set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else brought).add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            brought |= {(a.asname or a.name).split(".")[0] for a in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            brought.add(node.name)
        elif isinstance(node, ast.arg):
            brought.add(node.arg)
    return used, brought


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_no_name_comes_from_nowhere(page: str) -> None:
    known = set(dir(builtins)) | {"__name__"}
    for block in python_blocks(page):
        used, brought = names_in(block.text)
        known |= brought
        assert used <= known, f"{sorted(used - known)} in\n{block.text}"


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=[pytest.mark.slow] if p in SLOW else []) for p in RUNNABLE],
)
@pytest.mark.filterwarnings("ignore:.*frost:fretta.errors.FrettaWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # tracers
def test_blocks_run_as_pasted(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in python_blocks(page):
        if not block.needs_files:
            paste(block, names)
