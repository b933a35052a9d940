"""Ctrl-C: one line that says how to go on, no traceback, exit code 130."""

from __future__ import annotations

import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from executor_parts import ONE, small_jobs
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from fretta import _util
from fretta._util import ignoring_interrupts
from fretta.cli import progress
from fretta.cli.app import Commands, after_interrupt
from fretta.experiment.execute import Event, run_jobs
from fretta.experiment.store import Store

RECORDS = "results/records/[!.]*.json"
SRC = Path(__file__).parents[2] / "src"


def test_the_line() -> None:
    arguments = ["run", "my suite.toml", "--jobs", "2"]
    assert after_interrupt("run", arguments).endswith("fretta run 'my suite.toml' --jobs 2")
    adapt = after_interrupt("adapt", ["adapt", "--force", "--out", "o"])
    assert "fretta adapt --out o --resume" in adapt  # --force and --resume exclude each other
    train = after_interrupt("train", ["train", "digits", "--overwrite"])
    assert train.endswith("fretta train digits")  # goes on; --overwrite would begin again
    assert "fretta" not in after_interrupt("tsne", ["analyze", "tsne"])


def swallow_interrupt(*_: object) -> None:
    """As compiled code may: its own error takes the place of KeyboardInterrupt."""
    try:
        _util.raise_interrupt(signal.SIGINT, None)
    except KeyboardInterrupt:
        raise ValueError("could not determine the shape") from None


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def deny(*_: object) -> None:
    raise PermissionError(13, "denied", "a/b")


@pytest.mark.parametrize("work", [interrupt, swallow_interrupt, deny])
def test_commands_end_in_one_line(
    work: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_util, "_interrupted", threading.Event())
    app = typer.Typer(cls=Commands)

    @app.command()
    def run() -> None:
        work()

    @app.command()
    def other() -> None: ...

    before = signal.getsignal(signal.SIGINT)
    try:
        result = CliRunner().invoke(app, ["run"])
    finally:
        signal.signal(signal.SIGINT, before)
    if work is not deny:
        assert result.exit_code == 130
        assert "to go on: fretta" in result.stderr
        assert result.stderr.count("\n") == 1
    else:
        assert str(result.exception) == "denied: 'a/b'"


def test_an_interrupted_run_is_no_failed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_util, "_interrupted", threading.Event())
    monkeypatch.setattr("fretta.experiment.run._run", swallow_interrupt)
    store = Store(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_jobs(small_jobs("source", limit=32), store, options=ONE)
    assert not list(store.records())


def hear(pipe: multiprocessing.connection.Connection) -> None:
    pipe.send("up")
    pipe.recv()
    pipe.send("alive")


def test_workers_leave_the_signal_to_their_parent() -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=hear, args=(theirs,))
    with ignoring_interrupts():
        process.start()
    os.kill(process.pid or 0, signal.SIGINT)  # while it imports
    assert ours.recv() == "up"
    os.kill(process.pid or 0, signal.SIGINT)
    ours.send("?")
    assert ours.recv() == "alive"
    process.join()
    assert process.exitcode == 0


def test_the_counter_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, jobs = Store(tmp_path), small_jobs("source", "bn", "tent", limit=32)
    run_jobs(jobs[:2], store, options=ONE)
    printed: list[str] = []
    monkeypatch.setattr(progress, "print_line", printed.append)
    runs, events = progress.RunProgress(jobs), list[Event]()
    run_jobs(jobs, store, options=ONE, on_event=events.append)
    for event in events:
        runs.print_event(event)
    assert [e.kind for e in events if e.kind != "batch"] == ["there", "there", "began", "ended"]
    assert printed[0].startswith("2 of 3 runs")
    assert printed[1].startswith("[3/3] digits tent")
    with (console := Console(width=200)).capture() as shown:
        console.print(runs.table())
    assert "3 of 3 runs" in shown.get()


# ---- as a user does it: to the whole process group, as a terminal sends it ---------------------


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fretta", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def interrupted(folder: Path, pattern: str, *arguments: str) -> str:
    """Ctrl-C as soon as a file of that pattern is there; the line that is printed."""
    process = start(folder, *arguments)
    while process.poll() is None and not any(folder.glob(pattern)):
        time.sleep(0.01)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130, out + err
    assert "Traceback" not in out + err
    assert err.startswith("stopped")
    assert err.count("\n") == 1
    return err


def resumed(folder: Path, line: str) -> str:
    """The command that the line says to type, as typed."""
    process = start(folder, *shlex.split(line.partition("to go on: fretta ")[2]))
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out


EXECUTORS = [
    pytest.param([], marks=pytest.mark.slow, id="here"),
    pytest.param(["--jobs", "2"], marks=pytest.mark.slow, id="processes"),
    pytest.param(["--ray"], marks=pytest.mark.ray, id="ray"),
]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_run(tmp_path: Path, executor: list[str]) -> None:
    runs = ("run", "smoke", "--seed", "0", "--seed", "1", "--seed", "2")  # 12: some are left
    stopped = interrupted(tmp_path, RECORDS, *runs, *executor)
    there = len(list((tmp_path / "results" / "records").glob("[!.]*.json")))
    assert there < 12
    out = resumed(tmp_path, stopped)
    assert f"{there} were there already" in out
    assert f"[{there + 1}/12]" in out
    assert "[12/12]" in out


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_corrupt(tmp_path: Path, jobs: str) -> None:
    (tmp_path / "pictures" / "cat").mkdir(parents=True)
    for i in range(40):
        image = Image.effect_noise((128, 128), 50).convert("RGB")
        image.save(tmp_path / "pictures" / "cat" / f"{i}.png")
    arguments = ("corrupt", "pictures", "out", "--corruption", "glass_blur", "--jobs", jobs)
    stopped = interrupted(tmp_path, "out/glass_blur/*/cat/[!.]*.png", *arguments)
    assert "already there" in resumed(tmp_path, stopped)
    assert len(list((tmp_path / "out").rglob("[!.]*.png"))) == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "arguments"),
    [
        (RECORDS, "evaluate --model digits --data digits --method bn --method tea"),
        (RECORDS, "tune smoke --method tent --rule oracle"),
        (RECORDS, "analyze sensitivity --jobs 2"),
        ("results/records", "analyze redundancy"),
        ("d.ckpt", "train digits --out d.safetensors --epochs 200"),
        ("demo-output/records/[!.]*.json", "demo"),
    ],
)
def test_others(tmp_path: Path, pattern: str, arguments: str) -> None:
    interrupted(tmp_path, pattern, *arguments.split())
