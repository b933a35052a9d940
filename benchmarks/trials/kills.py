"""kill -9 of commands at random moments, again and again until they are through.

Commands run in a child that is forked after the imports, as `fretta` runs them. Each is first run
undisturbed, which gives what must come out and how long it takes; the moments of the kills are
uniform over that time. After a kill the same command is given again (with --resume where it wants
that). Worker processes are not killed: they end with their parent.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .tally import Tally, hold
from .tiny import save_pictures

TIMING = ("seconds", "seconds_per_batch")
LONGEST = 300  # seconds without an end: hung
FEW = 2  # kills of the short form


@dataclass
class Command:
    """A command line, run in a folder; `again` are the words after a kill."""

    name: str
    words: list[str]
    result: Callable[[Path], Any]
    again: tuple[str, ...] = ()
    begun: str = ""  # a file that says that there is something to resume
    kills: int = 20
    each: int = 4  # kills until it may end: one that is killed too often never gets anywhere
    victim: Callable[[int], int | None] = lambda child: child  # None: it is not there yet


def records(folder: Path) -> Any:
    """Of a store: all numbers but times."""
    from fretta.experiment.store import Store

    def numbers(rows: Any) -> Any:
        return {k: v for k, v in rows.items() if k not in TIMING}

    found = {}
    for record in Store(str(folder / "results")).records():
        hold(record.status == "done", f"{record.key} failed: {record.error}")
        rows = [numbers(row) for row in record.rows]
        found[record.key] = (record.run, rows, numbers(record.overall), record.settings)
    left = [p for p in (folder / "results").rglob("*") if "checkpoint" in p.parent.name]
    hold(not [p for p in left if not p.name.startswith(".")], f"a checkpoint was left: {left}")
    return found


def predictions(folder: Path) -> Any:
    hold(not (folder / "out" / "checkpoint.pt").exists(), "a checkpoint was left")
    names = ("predictions.csv", "health.jsonl", "adapted.safetensors")
    return {name: (folder / "out" / name).read_bytes() for name in names}


def pictures(folder: Path) -> Any:
    files = [p for p in (folder / "out").rglob("*") if p.is_file() and not p.name.startswith(".")]
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(files)}


def weights(folder: Path) -> Any:
    hold(not list(folder.glob("*.ckpt")), "a checkpoint was left")
    return (folder / "digits.safetensors").read_bytes()


def commands(short: bool) -> list[Command]:
    seeds = ["--seed", "0", "--seed", "1", "--threads", "1", "--checkpoint", "0"]
    adapt = ["adapt", "--model", "digits", "--data", "pictures", "--method", "tent"]
    adapt += ["--batch-size", "16", "--checkpoint", "0", "--out", "out"]
    corrupt = ["corrupt", "pictures", "out", "--corruption", "fog,contrast", "--severity", "1-3"]
    train = ["train", "digits", "--out", "digits.safetensors", "--epochs", "3"]
    found = [
        Command("fretta run", ["run", "smoke", *seeds], records),
        Command("fretta run --jobs 2", ["run", "smoke", *seeds, "--jobs", "2"], records),
        Command("fretta adapt", adapt, predictions, ("--resume",), "out/settings.json"),
        Command("fretta corrupt", corrupt, pictures),
        Command("fretta train", train, weights),
    ]
    if short:
        found = [command for command in found if command.name in ("fretta run", "fretta adapt")]
    for command in found:
        command.kills = FEW if short else command.kills
    return found


def start(command: Command, folder: Path) -> int:
    """The process that runs it."""
    words = list(command.words)
    if command.begun and (folder / command.begun).exists():
        words += command.again
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.chdir(folder)
        os.environ["OMP_NUM_THREADS"] = "1"
        with (folder / "log.txt").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        sys.argv = ["fretta", *words]
        from fretta.cli import main

        main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        os._exit(code)


def ended(child: int, deadline: float) -> int | None:
    """The exit code, or None if the time is over."""
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.002)


def strike(command: Command, child: int, moment: float) -> tuple[bool, int | None]:
    """Whether a process was killed before the command ended, and its exit code."""
    code = ended(child, moment)
    while code is None:
        victim = command.victim(child)
        with suppress(ProcessLookupError):
            if victim is not None:
                os.kill(victim, signal.SIGKILL)
                return True, to_end(child)
        code = ended(child, time.monotonic() + 0.02)
    return False, code


def to_end(child: int) -> int | None:
    """The exit code; None: it hung."""
    code = ended(child, time.monotonic() + LONGEST)
    if code is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return code


def finish(command: Command, folder: Path) -> float:
    """Run it to its end; the seconds that took."""
    begin = time.monotonic()
    code = to_end(start(command, folder))
    said = (folder / "log.txt").read_text(encoding="utf-8", errors="replace")[-300:]
    through = "is complete: there is nothing to resume" in " ".join(said.split())
    hold(code == 0 or through, f"ended with {code}: {said}")
    return time.monotonic() - begin


def new_folder(base: Path, name: object) -> Path:
    folder = base / str(name)
    folder.mkdir()
    save_pictures(folder / "pictures", 96)
    return folder


def kill(tally: Tally, command: Command, chance: random.Random) -> None:
    """As many kills as it takes; a store or folder that got through is compared, then a new one."""
    promise = f"kill -9 of {command.name}, then the same command: what an undisturbed one gives"
    base = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        length = finish(command, calm := new_folder(base, 0))
        if command.kills > FEW:  # once more: imports are over
            shutil.rmtree(calm)
            length = finish(command, calm := new_folder(base, 0))
        expected, kills, number = command.result(calm), 0, 0
        while kills < command.kills:
            number += 1
            folder, here, one = new_folder(base, number), 0, Tally("kills")
            with one.trial(promise):
                while kills < command.kills:
                    moment = time.monotonic() + chance.uniform(0, length)
                    killed, code = strike(command, start(command, folder), moment)
                    kills, here = kills + killed, here + killed
                    hold(code in (0, -signal.SIGKILL), f"ended with {code} by itself")
                    if not killed or here % command.each == 0:
                        break
                finish(command, folder)
                hold(command.result(folder) == expected, "another result")
            problem = next(iter(one.rows[promise]["failures"]), None)
            if problem is not None:
                kills = max(kills, number)  # a command that never works must end
            for last in range(here or problem is not None, 0, -1):
                tally.count(promise, problem if last == 1 else None, f"folder {number}")
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def trials(methods: list[str], seed: int, short: bool) -> Tally:
    tally = Tally("kills")
    for command in commands(short):
        kill(tally, command, random.Random(f"{seed}/{command.name}"))
    return tally
