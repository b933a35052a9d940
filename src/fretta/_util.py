"""Small tools that know nothing of adaptation: whole files, objects by name, worker processes."""

from __future__ import annotations

import hashlib
import importlib
import multiprocessing
import os
import signal
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from .errors import ConfigError


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A hidden name beside `path` to write to; it takes its place at once if all went well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays last: it is how Pillow knows the format.
    draft = path.with_name(f".{path.stem}.{uuid.uuid4().hex}.part{path.suffix}")
    try:
        yield draft
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def replace_file(path: Path, content: bytes) -> None:
    """Write beside `path`, flush to disk, then rename over it: a reader never sees half a file."""
    try:
        with atomic(path) as draft, draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = os.fspath(path)  # not the draft, or nothing, as of a full disk
        raise


def code_of(module: str) -> str:
    """SHA-256 of the file of an imported module; empty where there is none."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or not os.path.isfile(file):
        return ""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def import_object(spec: str, what: str) -> Any:
    """The object a `module:name` stands for. The current folder is searched too."""
    module, _, name = spec.partition(":")
    if not module or not name:
        raise ConfigError(f"{what} {spec!r} is not of the form module:name, such as my.nets:build")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:  # as `python -m` does
        sys.path.append(here)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise ConfigError(f"{what} {spec!r}: {module} wants more: {error}") from error
        raise ConfigError(
            f"{what} {spec!r}: {error}; looked in the current folder ({here}), in PYTHONPATH and"
            f" among the installed packages. Run fretta where {module.split('.')[0]}.py is, or set"
            " PYTHONPATH to that folder"
        ) from error
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        public = [n for n in vars(found) if not n.startswith("_")]
        raise ConfigError(
            f"{what} {spec!r}: {module!r} has no {name!r}; it has {', '.join(sorted(public)[:20])}"
        ) from error
    return found


_interrupted = threading.Event()


def raise_interrupt(number: int, frame: object) -> None:
    """A handler of SIGINT that remembers it: compiled code may turn the exception into another."""
    _interrupted.set()
    raise KeyboardInterrupt


def check_interrupt() -> None:
    """Raise KeyboardInterrupt if `raise_interrupt` did: an error that came since is its doing."""
    if _interrupted.is_set():
        raise KeyboardInterrupt


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Processes started inside never see SIGINT, so that Ctrl-C is answered once, by the parent.

    A terminal sends it to all of them. A handler in the worker would come too late: it spends its
    first seconds importing torch. The parent gets what arrived meanwhile on leaving.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # on its own start it would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """In a worker: end when the main process is gone, even if it was killed outright."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
