"""The files of a run: appended to safely, cut back to a checkpoint, never half a row.

Rows go straight to the operating system, so what was written survives the death of the process.
If the disk is full, the file is cut back to its last whole row before the error is raised.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._util import replace_file
from ..errors import StoreError

PREDICTIONS, HEALTH = "predictions.csv", "health.jsonl"
WEIGHTS, PAGE, SETTINGS = "adapted.safetensors", "summary.html", "settings.json"
CHECKPOINT, LOCK = "checkpoint.pt", ".lock"
OURS = (PREDICTIONS, HEALTH, WEIGHTS, PAGE, SETTINGS, CHECKPOINT)

TOP = 5
COLUMNS = (
    *("path", "label", "class", "confidence"),
    *(f"{name}{rank}" for rank in range(2, TOP + 1) for name in ("label", "confidence")),
    *("source_label", "note"),
)

_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


class AppendedFile:
    """Whole chunks at the end of a file; `size` is where the last one ended."""

    def __init__(self, path: Path, size: int = 0) -> None:
        self.path = path
        try:
            self._number = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            there = os.fstat(self._number).st_size
            if there < size:
                os.close(self._number)
                raise StoreError(
                    f"{path} has {there} bytes where the checkpoint needs {size}: it was changed or"
                    " cut since; start anew with --force"
                )
            os.ftruncate(self._number, size)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
        self.size = size

    def append(self, content: bytes) -> None:
        try:
            done = 0
            while done < len(content):
                done += os.pwrite(self._number, content[done:], self.size + done)
        except OSError as error:
            os.ftruncate(self._number, self.size)
            raise disk_error(self.path, error) from error
        self.size += len(content)

    def sync(self) -> None:
        try:
            os.fsync(self._number)
        except OSError as error:
            raise disk_error(self.path, error) from error

    def close(self) -> None:
        if self._number >= 0:
            os.close(self._number)
            self._number = -1


def disk_error(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write {path}: {error.strerror or error}. What was written before is whole; make"
        " room and go on with --resume"
    )


def write_whole(path: Path, content: bytes) -> None:
    """A file that appears whole or not at all."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise disk_error(path, error) from error


def row(cells: Sequence[str]) -> bytes:
    """One row of CSV: valid UTF-8 whatever bytes a file name holds."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8", "backslashreplace")


def path_cell(name: str) -> str:
    """A path no spreadsheet takes for a formula; ./=x.png is the same file as =x.png."""
    return f"./{name}" if _FORMULA.match(name) else name


def label_cell(name: str) -> str:
    """A label no spreadsheet takes for a formula: an apostrophe in front, unless it is a number."""
    return f"'{name}" if _FORMULA.match(name) and not _NUMBER.fullmatch(name) else name


def json_line(values: dict[str, Any]) -> bytes:
    clean = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }
    return (json.dumps(clean, allow_nan=False) + "\n").encode()


def write_json(path: Path, values: dict[str, Any]) -> None:
    write_whole(path, (json.dumps(values, indent=2) + "\n").encode())
