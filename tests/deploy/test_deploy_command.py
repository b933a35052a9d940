"""`fretta adapt` as a user types it: on folders and pipes, interrupted and killed."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from deploy_nets import ENVIRONMENT, content, save_images
from typer.testing import CliRunner

from fretta.cli import app
from fretta.deploy import AdaptOptions, adapt_images

Make = Callable[..., AdaptOptions]


def words(options: AdaptOptions, *more: str) -> list[str]:
    line = (
        f"adapt --model {options.model} --method {options.method} --size 16 --mean 0.5,0.5,0.5"
        " --std 0.25,0.25,0.25 --batch-size 8 --set lr=0.01 --device cpu --statistics 16"
    )
    paths = {n: str(getattr(options, n)) for n in ("weights", "data", "out", "labels")}
    return [*line.split(), *(w for n, path in paths.items() for w in (f"--{n}", path)), *more]


def test_a_folder(options: Make) -> None:
    done = CliRunner().invoke(app, words(options()), catch_exceptions=False)
    assert done.exit_code == 0
    assert "44 images in 6 batches" in done.output
    assert "labels  the file labels.txt" in done.output
    assert re.search(r"estimated without labels: too few images were compared", done.output)
    assert re.search(
        r"the written weights give the same label .* on \d+\.\d % of 44 images", done.output
    )
    assert (options().out / "summary.html").is_file()
    with pytest.raises(Exception, match="give one of them"):
        CliRunner().invoke(app, words(options(), "--resume", "--force"), catch_exceptions=False)


def test_a_model_that_returns_a_dict(options: Make, tmp_path: Path) -> None:
    expected, found = options(), options(model="deploy_nets:named", out=tmp_path / "named")
    for one in (expected, found):
        done = CliRunner().invoke(app, words(one), catch_exceptions=False)
        assert done.exit_code == 0
        assert "use 'auto' or 'stein'" in done.output  # batches of 8 are small
    assert content(found.out) == content(expected.out)
    line = ["check", found.model, "--size", "16"]
    assert "head      8 (16 features)" in CliRunner().invoke(app, line).output


def test_paths_from_a_pipe(options: Make, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(images)
    names = "\n".join(sorted(os.listdir(images))[:10])
    done = CliRunner().invoke(app, words(options(data="-")), input=names, catch_exceptions=False)
    assert "10 images in 2 batches" in done.output
    assert done.exit_code == 0
    other = options(data="-", out=options().out / "b")
    with pytest.raises(Exception, match="lies outside"):
        CliRunner().invoke(app, words(other), input="../x.png", catch_exceptions=False)


def test_the_shipped_model_needs_nothing_else(tmp_path: Path) -> None:
    save_images(tmp_path / "images", 6)
    line = ["adapt", "--model", "digits", "--data", str(tmp_path / "images"), "--device", "cpu"]
    done = CliRunner().invoke(app, [*line, "--out", str(tmp_path / "out")], catch_exceptions=False)
    assert "images  squash to 32×32" in done.output
    assert "labels  the card of the weights" in done.output


# ---- in a process of its own --------------------------------------------------------------------


def start(options: AdaptOptions, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fretta.cli", *words(options, "--checkpoint", "0", *more)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**ENVIRONMENT, "OMP_NUM_THREADS": "1"},
    )


def until_rows(process: subprocess.Popen[str], out: Path, rows: int) -> None:
    """Wait until the table has so many rows."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        file = out / "predictions.csv"
        if file.is_file() and file.read_bytes().count(b"\n") > rows:
            return
        time.sleep(0.01)
    raise AssertionError(process.communicate()[0])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_ended_by_a_signal_and_resumed(options: Make, images: Path, number: signal.Signals) -> None:
    """Paths come through a pipe, so the process is known to be at work when it is ended."""
    names = [f"{name}\n" for name in sorted(os.listdir(images))]
    full, part = (options(data="-", root=images, out=images.parent / n) for n in ("full", "part"))
    root = ["--root", str(images)]
    adapt_images(full, stdin=io.BytesIO("".join(names).encode()))

    process = start(part, *root)
    assert process.stdin is not None
    process.stdin.write("".join(names[:20]))
    process.stdin.flush()
    until_rows(process, part.out, 16)
    process.send_signal(number)  # it waits for the rest of the third batch
    message = process.communicate()[0]
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 128 + number
        assert "--resume" in message
        assert "Traceback" not in message

    process = start(part, *root, "--resume")
    message = process.communicate("".join(names))[0]
    assert process.returncode == 0, message
    assert "resumed after" in message
    assert content(part.out) == content(full.out)
