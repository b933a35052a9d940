"""Processes that we started, and those that they did: found by /proc, never somebody else's."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PAGE = 4096
SLOWEST = 120  # seconds until a cluster is there


def below(process: int) -> list[int]:
    """All processes that come from this one."""
    numbers = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    return [number for number in numbers if process in _ancestors(number)]


def titled(*parts: str) -> int | None:
    """The first process below this one whose title begins with the first part and has the rest."""
    for process in below(os.getpid()):
        line = title(process)
        if line.startswith(parts[0]) and all(part in line for part in parts[1:]):
            return process
    return None


def replica(name: str = "streams-0") -> int | None:
    """The process of this part of a service."""
    return titled("ray::ServeReplica", name)


def title(process: int) -> str:
    return _read(Path(f"/proc/{process}/cmdline")).replace("\0", " ").strip()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # it ended meanwhile
        return ""


def _ancestors(process: int) -> Iterator[int]:
    while process > 1:
        status = _read(Path(f"/proc/{process}/stat"))
        process = int(status.rpartition(")")[2].split()[1]) if status else 0
        yield process


def resident_mib(process: int | None) -> float:
    return int((_read(Path(f"/proc/{process}/statm")) or "0 0").split()[1]) * PAGE / 2**20


def alive(process: int) -> bool:
    status = _read(Path(f"/proc/{process}/stat"))
    return bool(status) and status.rpartition(")")[2].split()[0] != "Z"


def outlived(processes: list[int], seconds: float) -> list[str]:
    """The titles of those that are there after that time; they are ended."""
    end = time.monotonic() + seconds
    while (left := [p for p in processes if alive(p)]) and time.monotonic() < end:
        time.sleep(0.05)
    titles = [title(process) for process in left]
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return titles


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def ray_cluster() -> Iterator[str]:
    """The address of a Ray of our own with one place, which no driver ends.

    Its token is made here and is in the environment of this process, for drivers, meanwhile.
    """
    port, folder = free_port(), tempfile.mkdtemp(prefix="faults-")
    line = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    line += [f"--port={port}", f"--temp-dir={folder}", "--num-cpus=1", "--include-dashboard=false"]
    line += ["--object-store-memory=100000000", "--disable-usage-stats"]
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}
    before = {name: os.environ.get(name) for name in token}
    os.environ.update(token)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    log = Path(folder) / "start.log"
    with log.open("wb") as file:
        head = subprocess.Popen(line, stdout=file, stderr=subprocess.STDOUT, env=environment)
    try:
        end, place = time.monotonic() + SLOWEST, Path(folder) / "ray_current_cluster"
        while not (address := _read(place)):  # Ray writes it when all is there
            if head.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"Ray does not start: {_read(log)[-500:]}")
            time.sleep(0.1)
        yield address
    finally:
        started = [head.pid, *below(head.pid)]
        head.terminate()
        with suppress(subprocess.TimeoutExpired):
            head.wait(30)
        outlived(started, 10)
        head.wait()
        for name, value in before.items():
            del os.environ[name]
            os.environ.update({} if value is None else {name: value})
        shutil.rmtree(folder, ignore_errors=True)
