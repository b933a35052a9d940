"""Stores and output folders: two writers, full and read-only disks, damage, things that changed."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fretta.deploy import adapt_images
from fretta.errors import FrettaError
from fretta.experiment.execute import Options, run_jobs
from fretta.experiment.store import Store
from fretta.experiment.suite import load_suite

from .kills import LONGEST, Command, commands, ended, finish, new_folder, start
from .kills import predictions as results_of_adapt
from .kills import records as results_of_run
from .tally import Tally, hold
from .tiny import adapt_options, save_pictures, write_weights

TOGETHER = "two processes on one store or one output folder: what one gives, or a clear refusal"
FULL = "a full disk: a clear error; with room again the same command gives the same result"
READ_ONLY = "a read-only disk: a clear error, no traceback"
DAMAGE = "a truncated, edited, duplicated or newer-format record is named and the run repeated"
CHECKPOINT = "a damaged or foreign checkpoint: a clear error, or the same result; never another"
CHANGED = "pictures removed, added or renamed, or weights swapped, before --resume: refused"
PIXELS = "pictures with other pixels before --resume: rows written before stay, the rest is read"


def said(folder: Path) -> str:
    return (folder / "log.txt").read_text(encoding="utf-8", errors="replace")


def clear(folder: Path, code: int | None) -> None:
    """It ended by itself, with an error in words."""
    text = said(folder)
    hold(code not in (None, 0), f"ended with {code}")
    hold("Traceback" not in text, f"a traceback: {text[-200:]}")
    hold(bool(text.strip()), "no word")


@contextmanager
def disk(size: str) -> Iterator[Path]:
    """A small file system in memory."""
    place = Path(tempfile.mkdtemp(prefix="faults-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)
        place.rmdir()


def remount(place: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", place], check=True)


def can_mount() -> bool:
    try:
        with disk("1m"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def linked(folder: Path, place: Path) -> None:
    """What the command writes lies on the small disk."""
    for name in ("results", "out"):
        (place / name).mkdir()
        (folder / name).symlink_to(place / name)


def together(tally: Tally, base: Path, short: bool) -> None:
    run, _, adapt, corrupt, *_ = commands(False)
    for command in (run, corrupt)[: 1 if short else None]:
        calm = new_folder(base, f"calm {command.name}")
        finish(command, calm)
        expected = command.result(calm)
        for number in range(1 if short else 5):
            with tally.trial(TOGETHER, f"{command.name} {number}"):
                folder = new_folder(base, f"two {command.name} {number}")
                children = []
                for _ in range(2):
                    children.append(start(command, folder))
                    time.sleep(0.2 * number)
                codes = [ended(child, time.monotonic() + LONGEST) for child in children]
                hold(0 in codes, f"ended with {codes}: {said(folder)[-200:]}")
                hold("Traceback" not in said(folder), said(folder)[-300:])
                hold(command.result(folder) == expected, "another result")
    calm = new_folder(base, "calm adapt")
    finish(adapt, calm)
    expected = adapt.result(calm)
    for number in range(1 if short else 5):
        with tally.trial(TOGETHER, f"{adapt.name} {number}"):
            folder = new_folder(base, f"two adapt {number}")
            first = start(adapt, folder)
            while not (folder / "out" / "settings.json").exists() and first:
                time.sleep(0.002)
            second = start(adapt, folder)
            codes = [ended(child, time.monotonic() + LONGEST) for child in (first, second)]
            hold(codes[0] == 0 and codes[1] != 0, f"ended with {codes}")
            hold("Traceback" not in said(folder), said(folder)[-300:])
            hold(adapt.result(folder) == expected, "another result")


def full_disks(tally: Tally, base: Path, chance: random.Random, short: bool) -> None:
    if not can_mount():
        print("stores: no file system can be mounted here: full and read-only disks NOT tried")
        return
    run, _, adapt, corrupt, _ = commands(False)
    for command in (adapt,) if short else (run, adapt, corrupt):
        calm = new_folder(base, f"calm disk {command.name}")
        finish(command, calm)
        expected, needed = command.result(calm), _size(calm)
        for number in range(2 if short else 8):
            size = 4096 * max(1, int(needed * chance.uniform(0.02, 0.9)) // 4096)
            with tally.trial(FULL, f"{command.name}, {size} of {needed} bytes"), disk("64m") as d:
                folder = new_folder(base, f"full {command.name} {number}")
                linked(folder, d)
                remount(d, f"size={size}")
                code = ended(start(command, folder), time.monotonic() + LONGEST)
                if code != 0:  # else the small files fitted after all
                    clear(folder, code)
                remount(d, "size=64m")
                begun = (folder / command.begun).exists() if command.begun else True
                if code != 0 or begun:
                    _through(command, folder, code)
                hold(command.result(folder) == expected, "another result")
        with tally.trial(READ_ONLY, command.name), disk("64m") as d:
            folder = new_folder(base, f"read-only {command.name}")
            linked(folder, d)
            remount(d, "ro")
            clear(folder, ended(start(command, folder), time.monotonic() + LONGEST))


def _through(command: Command, folder: Path, code: int | None) -> None:
    """The command again, unless it was through."""
    if code != 0:
        finish(command, folder)


def _size(folder: Path) -> int:
    places = [folder / "results", folder / "out"]
    return sum(p.stat().st_size for place in places for p in place.rglob("*") if p.is_file())


# ---- damage --------------------------------------------------------------------------------------


def damaged(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    way = chance.choice(("cut", "empty", "flipped", "twice", "newer", "zeros", "longer", "text"))
    place = chance.randrange(max(1, len(content)))
    if way == "flipped":
        return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :], way
    newer = content.replace(b'"format":', b'"format":9', 1)
    return {
        "cut": content[:place],
        "empty": b"",
        "twice": content + content,
        "newer": newer if newer != content else content[:-1],
        "zeros": b"\0" * len(content),
        "longer": content + b"x",
        "text": b"not what it was",
    }[way], way


def damaged_records(tally: Tally, base: Path, chance: random.Random, rounds: int) -> None:
    jobs = load_suite("smoke").restricted(["source", "bn", "tent"], [0], 32).jobs(None)
    options = Options(threads=1, device="cpu")
    calm = base / "calm store"
    run_jobs(jobs, Store(str(calm / "results")), options=options)
    expected = results_of_run(calm)
    for number in range(rounds):
        folder = base / f"damaged {number}"
        shutil.copytree(calm, folder)
        packed = number % 3 == 2
        store = Store(str(folder / "results"))
        if packed:
            store.pack()
        files = [p for p in (folder / "results").rglob("*") if p.is_file()]
        file = chance.choice(sorted(files))
        content, way = damaged(file.read_bytes(), chance)
        if file.suffix == ".gz" and way == "flipped":
            content = gzip.compress(damaged(gzip.decompress(file.read_bytes()), chance)[0])
        case = f"{file.relative_to(folder)}: {way}"
        with tally.trial(DAMAGE, case):
            file.write_bytes(content)
            messages: list[str] = []
            try:
                found = list(Store(str(folder / "results")).records(messages))
                lost = len(found) < len(jobs)
                hold(not lost or bool(messages) or packed, "a record is missing without a word")
                run_jobs(jobs, Store(str(folder / "results")), options=options)
                hold(results_of_run(folder) == expected, "another result")
            except FrettaError as error:
                hold(packed, f"{type(error).__name__}: {error}")  # a pack is refused as a whole
        shutil.rmtree(folder)


def stopped_run(folder: Path, batches: int = 2) -> Any:
    """A run of `fretta adapt` that was stopped; its options."""
    save_pictures(folder / "pictures", 32)
    write_weights(folder / "tiny.safetensors")
    options = adapt_options(folder, checkpoint_seconds=0.0)
    done: list[int] = []
    adapt_images(options, on_batch=done.append, stopped=lambda: len(done) >= batches)
    return options


def damaged_checkpoints(tally: Tally, base: Path, chance: random.Random, rounds: int) -> None:
    calm, stopped = base / "calm run", base / "stopped run"
    options = stopped_run(calm)
    adapt_images(options, resume=True)
    expected = results_of_adapt(calm)
    stopped_run(stopped)
    for number in range(rounds):
        folder = base / f"checkpoint {number}"
        shutil.copytree(stopped, folder)
        names = ["checkpoint.pt", "checkpoint.pt", "predictions.csv", "health.jsonl"]
        file = folder / "out" / chance.choice([*names, "settings.json"])
        content, way = damaged(file.read_bytes(), chance)
        with tally.trial(CHECKPOINT, f"{file.name}: {way}"):
            file.write_bytes(content)
            try:
                adapt_images(adapt_options(folder, checkpoint_seconds=0.0), resume=True)
            except FrettaError:
                pass
            else:
                hold(results_of_adapt(folder) == expected, "another result")
        shutil.rmtree(folder)


def changed(tally: Tally, base: Path, chance: random.Random, rounds: int) -> None:
    other = base / "other.safetensors"
    write_weights(other)
    content = bytearray(other.read_bytes())
    content[-1] ^= 1
    other.write_bytes(bytes(content))

    def remove(folder: Path, picture: Path) -> None:
        picture.unlink()

    def add(folder: Path, picture: Path) -> None:
        shutil.copy(picture, folder / "pictures" / "more.png")

    def rename(folder: Path, picture: Path) -> None:
        picture.rename(picture.with_name("renamed.png"))

    def swap(folder: Path, picture: Path) -> None:
        shutil.copy(other, folder / "tiny.safetensors")

    ways: list[Callable[[Path, Path], None]] = [remove, add, rename, swap]
    stopped = base / "stopped for changes"
    stopped_run(stopped)
    for number in range(rounds):
        way = ways[number % len(ways)]
        folder = base / f"changed {number}"
        shutil.copytree(stopped, folder)
        with tally.trial(CHANGED, way.__name__):
            before = (folder / "out" / "predictions.csv").read_bytes()
            way(folder, chance.choice(sorted((folder / "pictures").iterdir())))
            try:
                adapt_images(adapt_options(folder), resume=True)
                hold(False, "it went on")
            except FrettaError:
                pass
            hold((folder / "out" / "predictions.csv").read_bytes() == before, "rows changed")
        with tally.trial(PIXELS, str(number)):
            if way is not swap:
                shutil.rmtree(folder / "pictures")
            save_pictures(folder / "pictures", 32, seed=number + 1)
            write_weights(folder / "tiny.safetensors")
            result = adapt_images(adapt_options(folder), resume=True)
            rows = (folder / "out" / "predictions.csv").read_bytes()
            hold(result.complete and rows.startswith(before), "rows changed")
        shutil.rmtree(folder)


def trials(methods: list[str], seed: int, short: bool) -> Tally:
    tally, chance = Tally("stores"), random.Random(f"{seed}/stores")
    base = Path(tempfile.mkdtemp(prefix="faults-"))
    before = os.environ.get("OMP_NUM_THREADS")
    try:
        damaged_records(tally, base, chance, 10 if short else 200)
        damaged_checkpoints(tally, base, chance, 10 if short else 200)
        changed(tally, base, chance, 4 if short else 40)
        together(tally, base, short)
        full_disks(tally, base, chance, short)
    finally:
        shutil.rmtree(base, ignore_errors=True)
        if before is not None:
            os.environ["OMP_NUM_THREADS"] = before
    return tally
