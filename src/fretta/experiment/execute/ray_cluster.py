"""Runs as tasks of a Ray cluster: it finds the cores and GPUs, and repeats what a dead worker lost.

Only plain data travels: a job, options and the place of the store. Results come back through the
store, which all nodes must see; a mark that the driver leaves there proves it before any work.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from ...errors import ConfigError, FrettaWarning, MissingExtraError, StoreError
from ...memory import keep_memory
from ..records import Job, Place, Record
from ..store import Store
from .jobs import Event, OnEvent, Options, cores, failed, run_one

LOOK_SECONDS = 0.5  # between two looks at the progress
AHEAD = 8  # tasks in the queue beyond those that have a place: a free core never waits for us


def run_on_ray(
    jobs: list[Job], store: Store, options: Options, tell: OnEvent, address: str
) -> Iterator[Record]:
    """Yield records as runs end. `local` starts a cluster here, any other address joins one."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtraError("ray", "ray", f"ray={address!r}") from error
    if address not in ("local", "auto") and ":" not in address:
        raise ConfigError(f"ray={address!r} is no address; use local, auto, host:port or ray://…")
    # The device is part of what Ray hands out: a GPU must be asked for, and is then number 0.
    cuda = (options.device or "cpu").startswith("cuda")
    threads = options.threads or 1
    options = replace(options, threads=threads, device="cuda" if cuda else options.device or "cpu")
    ours = not ray.is_initialized()
    if ours:
        _join(ray, address, threads)
    if store.local is not None:  # workers have another working folder
        store = Store(store.local.absolute())
    mark = f"seen-{uuid.uuid4().hex}"
    waiting, running = deque(jobs), dict[Any, Job]()
    try:
        _check_resources(ray, {"CPU": threads, "GPU": int(cuda)}, alone=ours and address == "local")
        task = ray.remote(
            num_cpus=threads, num_gpus=int(cuda), max_retries=options.retries, name="fretta"
        )(_task)
        progress = _Progress(ray, tell)
        store.write_checkpoint(mark, b"")
        while waiting or running:
            places = int(ray.cluster_resources().get("GPU" if cuda else "CPU", 0)) // threads
            while waiting and len(running) < places + AHEAD:
                job = waiting.popleft()
                parts = (_here(job).to_json(), store.where, asdict(options), mark)
                running[task.remote(*parts, os.environ.get("FRETTA_DATA"), progress.board)] = job
            ended, _ = ray.wait(list(running), num_returns=1, timeout=LOOK_SECONDS)
            progress.pass_on({job.run.key: job for job in running.values()})
            for ref in ended:
                job = running.pop(ref)
                record = _result(ray, ref, job, store)
                progress.begin(job)
                tell(Event(job, "ended", record=record))
                yield record
    finally:
        for ref in running:  # interrupted: what is in flight continues from its checkpoint one day
            with suppress(ray.exceptions.RayError):
                ray.cancel(ref, force=True)
        store.drop_checkpoint(mark)
        if ours:
            ray.shutdown()


def _join(ray: Any, address: str, threads: int) -> None:
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


def _check_resources(ray: Any, needed: dict[str, int], alone: bool) -> None:
    """A task that no node can take would wait for ever: say so."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(node.get(k, 0) >= n for k, n in needed.items()) for node in nodes):
        return
    amounts = " and ".join(f"{n} {k}" for k, n in needed.items() if n)
    if alone:
        raise ConfigError(f"a run needs {amounts}, which this machine does not have")
    message = f"a run needs {amounts}, which no node of the cluster has now; runs wait for one"
    warnings.warn(message, FrettaWarning, stacklevel=2)


def _here(job: Job) -> Job:
    """The job with absolute paths; a name of packaged weights is no path and stays."""
    root, weights = job.place.root, job.place.weights
    if root is not None:
        root = os.path.abspath(root)
    if weights is not None and os.path.exists(weights):
        weights = os.path.abspath(weights)
    return replace(job, place=Place(root, weights))


def _result(ray: Any, ref: Any, job: Job, store: Store) -> Record:
    try:
        ray.get(ref)
    except StoreError as error:  # concerns every run, so it ends all, as in the other executors
        raise StoreError(str(getattr(error, "cause", error))) from error
    except ray.exceptions.RayTaskError as error:
        return failed(job, store, f"the run stopped with an error nobody expected\n{error}")
    except ray.exceptions.RayError as error:
        reason = f"the Ray worker died (killed, often out of memory), or its node: {error}"
        return failed(job, store, reason)
    record = store.get(job.run.key)
    if record is None:
        raise StoreError(f"the record {job.run.key} has vanished from the store {store.where!r}")
    return record


# ---- progress -----------------------------------------------------------------------------------


class _Progress:
    """An actor where tasks post how far they are, read without waiting for it.

    It needs no core, and if it dies, runs go on.
    """

    def __init__(self, ray: Any, tell: OnEvent) -> None:
        class Board:  # here, so that it travels by value and its process need not import torch
            def __init__(self) -> None:
                self.latest: dict[str, tuple[int, int]] = {}

            def post(self, key: str, done: int, total: int) -> None:
                self.latest[key] = done, total

            def take(self) -> dict[str, tuple[int, int]]:
                latest, self.latest = self.latest, {}
                return latest

        self.ray, self.tell = ray, tell
        self.board = ray.remote(num_cpus=0)(Board).remote()
        self.answer: Any = None
        self.began: set[str] = set()

    def pass_on(self, running: dict[str, Job]) -> None:
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
                self.begin(running[key])
                if done:
                    self.tell(Event(running[key], "batch", done, total))

    def begin(self, job: Job) -> None:
        if job.run.key not in self.began:
            self.began.add(job.run.key)
            self.tell(Event(job, "began"))


# ---- inside a worker ----------------------------------------------------------------------------


def _task(
    job_data: dict[str, Any],
    where: str,
    options: dict[str, Any],
    mark: str,
    data_root: str | None,
    board: Any,
) -> None:
    import torch

    settings, store, job = Options(**options), Store(where), Job.from_json(job_data)
    if store.read_checkpoint(mark) is None:
        raise StoreError(
            f"a worker on {os.uname().nodename} does not see what the driver wrote to the store"
            f" {where!r}; give a folder that all nodes share, or a URL such as s3://bucket/results"
        )
    if data_root is not None:  # the node's own root comes first
        os.environ.setdefault("FRETTA_DATA", data_root)
    torch.set_num_threads(settings.threads or 1)
    keep_memory()
    posted = 0.0

    def tell(event: Event) -> None:
        nonlocal posted
        if event.kind != "ended" and time.monotonic() - posted >= LOOK_SECONDS:
            posted = time.monotonic()
            board.post.remote(job.run.key, event.done, event.total)

    run_one(job, store, settings, tell)
