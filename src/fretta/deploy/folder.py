"""The folder a run writes to: new, replaced or resumed, and used by one run at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import StoreError
from .outputs import LOCK, OURS, SETTINGS


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Make the folder and keep other runs out of it. The lock ends with the process."""
    new = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        number = os.open(out / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StoreError(f"cannot write to {str(out)!r}: {error.strerror or error}") from error
    try:
        _lock(number, out)
        try:
            yield
        finally:
            (out / LOCK).unlink(missing_ok=True)
            if new and not any(out.iterdir()):  # nothing came of it
                out.rmdir()
    finally:
        os.close(number)


def _lock(number: int, out: Path) -> None:
    try:
        import fcntl
    except ModuleNotFoundError:  # not on this system
        return
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise StoreError(
            f"another run is writing to {str(out)!r}; wait for it or end it"
        ) from error


def clear(out: Path) -> None:
    """Remove what an earlier run wrote, and nothing else."""
    for name in OURS:
        (out / name).unlink(missing_ok=True)


def earlier(out: Path, resume: bool, force: bool) -> dict[str, Any] | None:
    """The settings of the run to resume, or None where a new one may begin."""
    there = sorted(p.name for p in out.iterdir() if p.name != LOCK)
    if force:
        return None
    if resume and SETTINGS in there:
        return read_settings(out)
    if there and not resume:
        raise StoreError(
            f"{str(out)!r} is not empty ({', '.join(there[:4])}); go on with --resume, replace what"
            " is there with --force, or choose another --out"
        )
    if there:
        raise StoreError(
            f"{str(out)!r} holds no run to resume: there is no {SETTINGS} in it; choose another"
            " --out, or --force"
        )
    return None


def read_settings(out: Path) -> dict[str, Any]:
    try:
        content = json.loads((out / SETTINGS).read_text(encoding="utf-8"))
        if not isinstance(content, dict) or not isinstance(content.get("decisive"), dict):
            raise ValueError("it has no table of settings")
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{str(out / SETTINGS)!r} cannot be read ({error}); start anew with --force"
        ) from error
    return content


def check_same(before: dict[str, Any], now: dict[str, Any], out: Path) -> None:
    """A run goes on only as it began: what decides its result must not have changed."""
    keys = sorted(before.keys() | now.keys())
    different = [k for k in keys if before.get(k) != now.get(k)]
    if different:
        listed = "; ".join(f"{k}: {before.get(k)!r}, now {now.get(k)!r}" for k in different[:4])
        raise StoreError(
            f"the run in {str(out)!r} was begun with other settings ({listed}), so going on would"
            " mix two results; give the same ones, or start anew with --force"
        )
