"""docs/tutorial.md, run as written, from the first block to the last; its output is compared."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fretta.cli import app

PAGE = (Path(__file__).parent.parent / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.M | re.S)
NUMBER = re.compile(r"[+-]?\d+\.\d+")
# Other processors round differently, and few images decide. Points; a share in the table.
TOLERANCE = {"estimated": 20.0, "without labels": 20.0, ".png": 0.05, "": 2.0}


def command(line: str) -> str:
    """What a shell does with the commands of the page, in this process."""
    first, _, second = line.partition(" | ")
    name, *words = shlex.split(second or first)
    if name == "fretta":
        folder = first.removeprefix("ls ") if second else None
        names = "\n".join(sorted(p.name for p in Path(folder).iterdir())) if folder else None
        done = CliRunner().invoke(app, words, input=names, catch_exceptions=False)
        assert done.exit_code == 0, f"{line}\n{done.output}"
        return done.output
    if name == "python":
        with contextlib.redirect_stdout(io.StringIO()) as out:
            runpy.run_path(words[0], run_name="__main__")
        return out.getvalue()
    if name == "head":
        lines = Path(words[1]).read_text().splitlines(keepends=True)
        return "".join(lines[: -int(words[0])])
    assert line == "export PYTHONPATH=$PWD", line
    return ""


def same(printed: str, expected: str) -> bool:
    """Equal but for numbers with a point, which may differ a little."""
    if NUMBER.sub("#", printed) != NUMBER.sub("#", expected):
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(expected), strict=True)
    most = next(size for word, size in TOLERANCE.items() if word in printed)
    return all(abs(float(a) - float(b)) <= most for a, b in pairs)


def check(output: str, expected: str) -> None:
    """Every line of the page is among the lines printed, in that order."""
    printed = iter(output.splitlines())
    for line in expected.splitlines():
        assert any(same(one, line) for one in printed), f"{line!r} is not in\n{output}"


def test_the_whole_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shop_net", raising=False)
    output = ""
    kinds = [kind for kind, _ in BLOCKS]
    assert kinds.count("text") >= 6
    for kind, text in BLOCKS:
        file = re.match(r"# (\w+\.py)\n", text)
        if kind == "python":
            assert file, text
            Path(file[1]).write_text(text, encoding="utf-8")
        elif kind == "sh":
            lines = re.sub(r"\\\n\s*", "", text).splitlines()
            output = "".join(command(line) for line in lines)
        else:
            assert kind == "text"
            check(output, text)


def test_what_is_deployed_knows_nothing_of_fretta() -> None:
    plain = {"numpy", "torch", "PIL", "safetensors", "pathlib", "shop_net"}
    for name in ("shop_net.py", "serve.py"):
        code = next(text for _, text in BLOCKS if text.startswith(f"# {name}\n"))
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= plain
            elif isinstance(node, ast.ImportFrom):
                assert str(node.module).split(".")[0] in plain
            assert not isinstance(node, ast.Name) or node.id != "__import__"


def test_the_comparison_can_fail() -> None:
    assert same("accuracy: 46.1 % before", "accuracy: 46.7 % before")
    for printed, expected in (
        ("accuracy: 40.1 % before", "accuracy: 46.7 % before"),
        ("accuracy: 46.1 % after", "accuracy: 46.7 % before"),
        ("540 images", "541 images"),
        ("a.png,2,0.74", "a.png,2,0.84"),
        ("estimated: -10.0 points", "estimated: +34.5 points"),
    ):
        assert not same(printed, expected)
