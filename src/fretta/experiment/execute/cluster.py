"""A Ray cluster, joined or started: tasks are handed to it, and say how far they are."""

from __future__ import annotations

import logging
import os
import socket
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from ...errors import ConfigError, FrettaWarning, MissingExtraError
from .jobs import cores

LOOK_SECONDS = 0.5  # between two looks at the progress
AHEAD = 8  # tasks in the queue beyond those that have a place: a free core never waits for us

OnProgress = Callable[[str, int, int], None]  # key of a task, done, total


def task_device(device: str | None) -> str:
    """The device inside a task: Ray hands out the GPU that is asked for, as number 0."""
    name = device or "cpu"
    return "cuda" if name.startswith("cuda") else name


@contextmanager
def connected(address: str, threads: int, cuda: bool) -> Iterator[tuple[Any, bool]]:
    """The module `ray`, and whether the connection was there: then it is used and left open.

    `local` starts a cluster here, any other address joins one.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtraError("ray", "ray", f"ray={address!r}") from error
    if address not in ("local", "auto") and ":" not in address:
        raise ConfigError(f"ray={address!r} is no address; use local, auto, host:port or ray://…")
    ours = not ray.is_initialized()
    if ours:
        join(ray, address, threads)
    try:
        check_resources(ray, {"CPU": threads, "GPU": int(cuda)}, alone=ours and address == "local")
        yield ray, not ours
    finally:
        if ours:
            ray.shutdown()


def join(ray: Any, address: str, threads: int) -> None:
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves this machine
        places = max(cores(), threads)
        ray.init(address="local", num_cpus=places, include_dashboard=False, **quiet)
        return
    try:
        if address != "auto":  # Ray itself would try for more than a minute
            host, _, port = address.removeprefix("ray://").rpartition(":")
            if not port.isdigit():
                raise ValueError(f"the port {port!r} is no number")
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"cannot join a Ray cluster at {address!r} ({error}); start one with `ray start --head`"
            " (and give its token to this process, if it asks for one), or use `local` for one on"
            " this machine"
        ) from error


def check_resources(ray: Any, needed: dict[str, int], alone: bool) -> None:
    """A task that no node can take would wait for ever: say so."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(node.get(k, 0) >= n for k, n in needed.items()) for node in nodes):
        return
    amounts = " and ".join(f"{n} {k}" for k, n in needed.items() if n)
    if alone:
        raise ConfigError(f"a run needs {amounts}, which this machine does not have")
    message = f"a run needs {amounts}, which no node of the cluster has now; runs wait for one"
    warnings.warn(message, FrettaWarning, stacklevel=2)


def run_tasks(
    ray: Any,
    function: Callable[..., Any],
    tasks: Mapping[str, tuple[Any, ...]],
    on_progress: OnProgress,
    *,
    threads: int,
    cuda: bool,
    retries: int,
    cancel: bool,
) -> Generator[tuple[str, Any]]:
    """(key, what ray.get takes) of each task as it ends. Tasks get a board as last argument.

    retries   how often Ray gives the task of a dead worker to another
    cancel    when interrupted: only where the connection stays. Its end ends its tasks, and
              canceling one that just ended would kill the driver (Ray 2.60, task_manager.cc)
    """
    task = ray.remote(num_cpus=threads, num_gpus=int(cuda), max_retries=retries, name="fretta")(
        function
    )
    progress = _Progress(ray, on_progress)
    waiting, running = deque(tasks.items()), dict[Any, str]()
    try:
        while waiting or running:
            places = int(ray.cluster_resources().get("GPU" if cuda else "CPU", 0)) // threads
            while waiting and len(running) < places + AHEAD:
                key, arguments = waiting.popleft()
                running[task.remote(*arguments, progress.board)] = key
            ended, _ = ray.wait(list(running), num_returns=1, timeout=LOOK_SECONDS)
            progress.pass_on(set(running.values()))
            for reference in ended:
                yield running.pop(reference), reference
    finally:
        for reference in running if cancel else ():  # they go on from their checkpoints one day
            with suppress(ray.exceptions.RayError):
                ray.cancel(reference, force=True)  # an interrupt may get lost in compiled code


class _Progress:
    """An actor where tasks post how far they are, read without waiting for it.

    It needs no core, and if it dies, runs go on.
    """

    def __init__(self, ray: Any, on_progress: OnProgress) -> None:
        class Board:  # here, so that it travels by value and its process need not import torch
            def __init__(self) -> None:
                self.latest: dict[str, tuple[int, int]] = {}

            def post(self, key: str, done: int, total: int) -> None:
                self.latest[key] = done, total

            def take(self) -> dict[str, tuple[int, int]]:
                latest, self.latest = self.latest, {}
                return latest

        self.ray, self.on_progress = ray, on_progress
        self.board = ray.remote(num_cpus=0)(Board).remote()
        self.answer: Any = None

    def pass_on(self, running: set[str]) -> None:
        self.answer = self.answer or self.board.take.remote()
        if not self.ray.wait([self.answer], timeout=0)[0]:
            return
        answer, self.answer = self.answer, None
        try:
            latest = self.ray.get(answer)
        except self.ray.exceptions.RayError:  # the board died: progress is not worth more
            return
        for key, (done, total) in latest.items():
            if key in running:
                self.on_progress(key, done, total)


def begin_work(threads: int, key: str, board: Any) -> Callable[[int, int], None]:
    """Inside a worker: set threads and memory; a function that posts how far it is."""
    import torch

    from ...memory import keep_memory

    torch.set_num_threads(threads)
    keep_memory()
    posted = 0.0

    def post(done: int, total: int) -> None:
        nonlocal posted
        if time.monotonic() - posted >= LOOK_SECONDS:
            posted = time.monotonic()
            board.post.remote(key, done, total)

    return post
