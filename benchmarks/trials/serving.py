"""`fretta serve` on the digits model as a process of its own, to be attacked and killed."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from processes import below, free_port, outlived, title

from fretta.serve.settings import Settings

from .tally import hold

LONGEST = 240  # seconds of anything: hung
HOST = "127.0.0.1"
AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")  # of Ray: they look for it for a minute


def until(check: Callable[[], Any], what: str, seconds: float = LONGEST) -> Any:
    """Wait until it is there."""
    end = time.monotonic() + seconds
    while not (found := check()):
        hold(time.monotonic() < end, f"not within {seconds:g} s: {what}")
        time.sleep(0.05)
    return found


class Service:
    """A folder, a port, and the process that serves there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = Settings(
            "digits",
            method="tent",
            device="cpu",
            store=str(folder / "store"),
            checkpoint_every=4,
            port=free_port(),
            max_body=1 << 20,
            max_images=64,
            timeout=15.0,
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.startup = 0.0  # seconds

    @property
    def port(self) -> int:
        return self.settings.port

    def start(self) -> None:
        line = [sys.executable, "-m", "fretta", "serve"]
        for name, value in self.settings.to_dict().items():
            line += [f"--{name.replace('_', '-')}", str(value)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (self.folder / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(line, stdout=log, stderr=log, env=environment)

    def begin(self) -> None:
        before = time.monotonic()
        self.start()
        self.ready()
        self.startup = time.monotonic() - before

    def ready(self) -> None:
        until(lambda: self.ended() or self.healthy(), "the service answers")
        hold(not self.ended(), f"it ended by itself: {self.log()}")

    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def log(self) -> str:
        return (self.folder / "log.txt").read_text(encoding="utf-8", errors="replace")[-500:]

    def healthy(self) -> bool:
        try:
            return self.get("/healthz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def kill(self) -> list[str]:
        """With kill -9; the processes that it left behind, which are ended."""
        assert self.process is not None
        started = below(self.process.pid)
        agents = [p for p in started if title(p).startswith(AGENTS)]
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        left = outlived([p for p in started if p not in agents], 60)
        outlived(agents, 0)
        return left

    def stop(self) -> int:
        """As Ctrl-C; the exit code."""
        assert self.process is not None
        started = below(self.process.pid)
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(LONGEST)
        finally:
            self.process.kill()
            outlived(started, 20)


@contextmanager
def running() -> Iterator[Service]:
    """A service that answers; it and its folder are gone afterwards."""
    service = Service(Path(tempfile.mkdtemp(prefix="faults-")))
    try:
        service.begin()
        yield service
    finally:
        if not service.ended():
            service.kill()
        shutil.rmtree(service.folder, ignore_errors=True)
