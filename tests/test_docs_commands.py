"""The commands that the pages write: each exists, and so does every option on its line."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image

from fretta.cli import app
from fretta.data import open_dataset
from pages import ROOT, blocks

PAGES = ["README.md", "examples/README.md"]
PAGES += sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
LINE = re.compile(r"^(?:\$ )?(?:\w+=\S+ )*(?:[^|#\n]*\| )?(fretta .*)$", re.M)
USAGE: Any = typer.BadParameter.__base__  # click's UsageError, or that of Typer's own click
SPAN = re.compile(r"(?<!`)`(fretta [a-z][^`\n]*)`(?!`)")  # in the text and in tables


def commands(page: str) -> list[str]:
    """Lines of shell blocks and of blocks without a language, continued ones as one; then spans."""
    shell = "\n".join(b.text for b in blocks(page) if b.language in ("", "sh"))
    text = (ROOT / page).read_text(encoding="utf-8")
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    shell += "\n".join(re.findall(r"^ {4}(.*)$", plain, re.M))  # an indented block
    return LINE.findall(re.sub(r"\\\n\s*", "", shell)) + SPAN.findall(plain)


def problem(line: str) -> str:
    """Why it cannot be meant; empty if it can. Values, $VARIABLES and (remarks) are not read."""
    command: Any = typer.main.get_command(app)
    words = shlex.split(re.sub(r"\([^)]*\)", "", line), comments=True)[1:]
    words = [word for word in words if not re.fullmatch(r"\$\w+", word)]
    while words and (known := getattr(command, "commands", None)):
        if words[0] not in known:
            return f"no command {words[0]}"
        command = known[words.pop(0)]
    try:
        parser = command.make_parser(command.context_class(command))
        _, more, _ = parser.parse_args(words)
    except USAGE as error:
        return error.format_message()
    return f"unexpected {' '.join(more)}" if more else ""


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_those_of_the_program(page: str) -> None:
    found = {line: problem(line) for line in commands(page)}
    assert {line: text for line, text in found.items() if text} == {}


def test_they_are_found_and_the_check_can_fail() -> None:
    assert sum(len(commands(page)) for page in PAGES) > 100
    assert any("--write-config" in line for line in commands("docs/serve.md"))  # continued
    assert problem("fretta run digits --store results  # a comment") == ""
    for wrong in (
        "fretta rum digits",
        "fretta analyze nothing",
        "fretta run digits --stor results",
        "fretta run digits --store",
        "fretta run digits another",
        "fretta analyze redundancy $CIFAR --no-such 1",
    ):
        assert problem(wrong), wrong


def asked(line: str, port: int, folder: Path) -> dict[str, Any]:
    """What the service answers to a line with curl; a 404 of Ray's proxy means: try again."""
    words = shlex.split(line.replace(":8000/", f":{port}/"))
    for _ in range(60):
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120)
        if done.stdout.startswith("{"):
            break
        time.sleep(1)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")  # those of Ray are not ours
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl: docs/serve.md is NOT tested")
def test_the_first_lines_of_the_service(tmp_path: Path) -> None:
    """docs/serve.md: the command that starts it, on another port, and the request with curl."""
    page = blocks("docs/serve.md")
    (start,), (line,) = (
        re.findall(f"^{word} .*$", "".join(b.text for b in page if b.language == "sh"), re.M)[:1]
        for word in ("fretta serve", "curl")
    )
    for name, pixels in zip(("a.jpg", "b.jpg"), clean_digits(2), strict=True):
        Image.fromarray(pixels).save(tmp_path / name)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    assert "--port 8000" in start
    words = shlex.split(start.replace("--port 8000", f"--port {port}"))[1:]
    process = subprocess.Popen(
        [sys.executable, "-m", "fretta", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stdout is not None
        assert any(line.startswith("serving http://127.0.0.1:") for line in process.stdout)
        answer = asked(line, port, tmp_path)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 0
    check_answer(answer)
    assert list((tmp_path / "streams").rglob("door.safetensors"))


def clean_digits(count: int) -> Any:
    return open_dataset("digits", corruption=None).domain("clean").read(range(count))


def check_answer(answer: dict[str, Any]) -> None:
    """It has what the page shows, and no less."""
    shown = next(b.text for b in blocks("docs/serve.md") if b.language == "json")
    assert answer["stream"] == "door"
    assert len(answer["answers"]) == 2
    for part in (answer, answer["answers"][0], answer["health"]):
        shown = re.sub("|".join(f'"{key}":' for key in part), "", shown)
    assert not re.search(r'"\w+":', shown), shown
