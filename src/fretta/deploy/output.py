"""The folder of a run: locked, and its files are never half written.

Rows go straight to the operating system, so what was written survives the death of the process. If
the disk is full, the file is cut back to its last complete row before the error is raised.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import shutil
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from filelock import FileLock, Timeout

from .._util import replace_file
from ..data.read_ahead import FileBatch
from ..errors import StoreError

PREDICTIONS, HEALTH = "predictions.csv", "health.jsonl"
WEIGHTS, PAGE, SETTINGS = "adapted.safetensors", "summary.html", "settings.json"
CHECKPOINT, LOCK, LABEL_ME = "checkpoint.pt", ".lock", "label-me.csv"
FILES = (PREDICTIONS, HEALTH, WEIGHTS, PAGE, SETTINGS, CHECKPOINT, LABEL_ME)
CHECKPOINT_FORMAT = 3

TOP = 5
COLUMNS = (
    *("path", "label", "class", "confidence"),
    *(f"{name}{rank}" for rank in range(2, TOP + 1) for name in ("label", "confidence")),
    *("source_label", "note"),
)
_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
# What torch raises for files that are no checkpoints.
_BROKEN = (OSError, RuntimeError, ValueError, LookupError, EOFError, TypeError, struct.error)


# ---- the folder ---------------------------------------------------------------------------------


@contextmanager
def lock_folder(out: Path) -> Iterator[None]:
    """Create the folder and keep other runs out of it. The lock ends with the process.

    The lock file stays in the folder, as filelock advises.
    """
    new = not out.exists()
    lock = FileLock(out / LOCK, timeout=0)
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise StoreError(
            f"another run is writing to {str(out)!r}; wait for it or end it"
        ) from error
    except OSError as error:
        raise StoreError(f"cannot write to {str(out)!r}: {error.strerror or error}") from error
    try:
        yield
    finally:
        if new and [p.name for p in out.iterdir()] == [LOCK]:  # nothing came of it
            shutil.rmtree(out)
        lock.release()


def clear(out: Path) -> None:
    """Remove what an earlier run wrote, and nothing else."""
    for name in FILES:
        (out / name).unlink(missing_ok=True)


def read_previous(out: Path, resume: bool, force: bool) -> dict[str, Any] | None:
    """The settings of the run to resume, or None where a new one may begin."""
    there = sorted(p.name for p in out.iterdir() if p.name != LOCK)
    if force or not there:
        return None
    if not resume:
        raise StoreError(
            f"{str(out)!r} is not empty ({', '.join(there[:4])}); continue with --resume, replace"
            " what is there with --force, or choose another --out"
        )
    if SETTINGS not in there:
        raise StoreError(
            f"{str(out)!r} holds no run to resume: there is no {SETTINGS} in it; choose another"
            " --out, or --force"
        )
    try:
        settings: dict[str, Any] = json.loads((out / SETTINGS).read_text(encoding="utf-8"))
        complete, _ = settings["complete"], settings["identity"].keys()
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{str(out / SETTINGS)!r} cannot be read ({error}); start again with --force"
        ) from error
    if complete:
        raise StoreError(
            f"the run in {str(out)!r} is complete: there is nothing to resume; --force repeats it"
        )
    return settings


def check_same(before: dict[str, Any], now: dict[str, Any], out: Path) -> None:
    """A run is resumed only with the settings, weights and files it began with."""
    keys = sorted(before.keys() | now.keys())
    changed = [
        f"{k}: {before.get(k)!r}, now {now.get(k)!r}" for k in keys if before.get(k) != now.get(k)
    ]
    if changed:
        raise StoreError(
            f"the run in {str(out)!r} began with other settings ({'; '.join(changed[:4])}), so to"
            " resume it would mix two results; give the same ones, or start again with --force"
        )


# ---- files --------------------------------------------------------------------------------------


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}. What was written before is complete;"
            " make room and continue with --resume"
        ) from error


class AppendedFile:
    """Complete chunks at the end of a file; `size` is where the last one ended.

    size, digest   of what a checkpoint says is there
    """

    def __init__(self, path: Path, size: int = 0, digest: str | None = None) -> None:
        self.path, self.size = path, size
        there = path.stat().st_size if path.exists() else 0
        self._mark = hashlib.sha256()
        if there >= size > 0:
            with path.open("rb") as file:
                self._mark.update(file.read(size))
        if there < size or digest not in (None, self.digest):
            raise StoreError(
                f"{path} has {there} bytes where the checkpoint needs {size}, or others than it"
                " had: it was changed or cut since; start again with --force"
            )
        with disk_errors(path):
            self._number = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            os.ftruncate(self._number, size)

    def append(self, content: bytes) -> None:
        with disk_errors(self.path):
            try:
                done = 0
                while done < len(content):
                    done += os.pwrite(self._number, content[done:], self.size + done)
            except OSError:
                os.ftruncate(self._number, self.size)
                raise
        self.size += len(content)
        self._mark.update(content)

    @property
    def digest(self) -> str:
        return self._mark.hexdigest()

    def sync(self) -> None:
        with disk_errors(self.path):
            os.fsync(self._number)

    def close(self) -> None:
        os.close(self._number)


def write_file(path: Path, content: bytes) -> None:
    """A file that appears complete or not at all."""
    with disk_errors(path):
        replace_file(path, content)


def write_checkpoint(path: Path, values: dict[str, Any], state: dict[str, Any]) -> None:
    """`values` go as JSON, which keeps names with any bytes; the restricted loader may not."""
    content = io.BytesIO()
    torch.save({"format": CHECKPOINT_FORMAT, "values": json.dumps(values), **state}, content)
    write_file(path, content.getvalue())


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """(values, state), or None where no checkpoint was reached."""
    if not path.is_file():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        if state.pop("format") != CHECKPOINT_FORMAT:
            raise ValueError("another format")
        return json.loads(state.pop("values")), state
    except (*_BROKEN, UnpicklingError) as error:
        raise StoreError(
            f"the checkpoint {str(path)!r} cannot be read"
            f" ({(str(error) or type(error).__name__).splitlines()[0]}); start again with --force"
        ) from error


# ---- predictions.csv ----------------------------------------------------------------------------


def csv_rows(rows: Sequence[Sequence[str]]) -> bytes:
    """Valid UTF-8 whatever bytes a file name holds."""
    lines = []
    for row in rows:
        text = io.StringIO()
        csv.writer(text, lineterminator="\r\n").writerow(row)  # quotes what holds a part of that
        lines.append(text.getvalue().removesuffix("\r\n") + "\n")
    return _valid("".join(lines)).encode()


def _valid(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def path_cell(name: str) -> str:
    """A path no spreadsheet takes for a formula; ./=x.png is the same file as =x.png."""
    return _valid(f"./{name}" if _FORMULA.match(name) else name)


def label_cell(name: str) -> str:
    """A label no spreadsheet takes for a formula: an apostrophe in front, unless it is a number."""
    formula = _FORMULA.match(name) and not _NUMBER.fullmatch(name)
    return _valid(f"'{name}" if formula else name)


def prediction_rows(
    batch: FileBatch,
    ranked: list[tuple[list[int], list[float]]],
    source: list[int],
    labels: list[str],
) -> bytes:
    """A row for every file, in order; those without a prediction say why.

    ranked   the most likely classes of each readable image, best first, and their confidences;
             empty where the model diverged
    source   the class the source model predicts, -1 where it did not see the image
    """
    rows = {position: [""] * (len(COLUMNS) - 2) for position in batch.unreadable}
    notes = batch.notes | {i: f"unreadable: {why}" for i, why in batch.unreadable.items()}
    for position, (classes, confidences), seen in zip(batch.kept, ranked, source, strict=True):
        cells = [
            cell
            for number, p in zip(classes, confidences, strict=True)
            for cell in (label_cell(labels[number]), f"{p:.6f}")
        ]
        cells += [""] * (2 * TOP - len(cells))
        before = label_cell(labels[seen]) if seen >= 0 else ""
        rows[position] = [cells[0], str(classes[0]) if classes else "", *cells[1:], before]
        if not classes:
            notes[position] = "no prediction: the adapted model's logits are not finite"
    names = batch.names
    return csv_rows([[path_cell(names[i]), *rows[i], notes.get(i, "")] for i in sorted(rows)])
