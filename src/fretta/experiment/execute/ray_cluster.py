"""Runs as tasks of a Ray cluster: it finds the cores and GPUs, and repeats what a dead worker lost.

Only plain data travels: a job, options and the place of the store. Results come back through the
store, which all nodes must see; a mark that the driver leaves there proves it before any work.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from typing import Any

from ...errors import StoreError
from ..records import Job, Place, Record
from ..store import Store
from .cluster import begin_work, connected, run_tasks, task_device
from .jobs import Event, OnEvent, Options, failed, run_one


def run_on_ray(
    jobs: list[Job], store: Store, options: Options, tell: OnEvent, address: str
) -> Iterator[Record]:
    """Yield records as runs end. `local` starts a cluster here, any other address joins one."""
    threads, device = options.threads or 1, task_device(options.device)
    options, cuda = replace(options, threads=threads, device=device), device == "cuda"
    if store.local is not None:  # workers have another working folder
        store = Store(store.local.absolute())
    mark = f".seen-{uuid.uuid4().hex}"  # hidden: a driver that is killed leaves it
    by_key, began = {job.run.key: job for job in jobs}, set[str]()

    def begin(key: str) -> None:
        if key not in began:
            began.add(key)
            tell(Event(by_key[key], "began"))

    def on_progress(key: str, done: int, total: int) -> None:
        begin(key)
        if done:
            tell(Event(by_key[key], "batch", done, total))

    shared = (store.where, asdict(options), mark, os.environ.get("FRETTA_DATA"))
    tasks = {key: (_here(job).to_json(), *shared) for key, job in by_key.items()}
    needs: dict[str, Any] = {"threads": threads, "cuda": cuda, "retries": options.retries}
    with ExitStack() as closed, connected(address, threads, cuda) as (ray, was_open):
        store.write_checkpoint(mark, b"")
        closed.callback(store.drop_checkpoint, mark)  # not before: tasks begin while it closes
        ended = run_tasks(ray, _task, tasks, on_progress, cancel=was_open, **needs)
        with closing(ended):
            for key, reference in ended:
                record = _result(ray, reference, by_key[key], store)
                begin(key)
                tell(Event(by_key[key], "ended", record=record))
                yield record


def _here(job: Job) -> Job:
    """The job with absolute paths; a name of packaged weights is no path and stays."""
    place = job.place
    root, folder = (
        None if at is None else os.path.abspath(at) for at in (place.root, place.folder)
    )
    weights = place.weights
    if weights is not None and os.path.exists(weights):
        weights = os.path.abspath(weights)
    return replace(job, place=Place(root, weights, folder))


def _result(ray: Any, ref: Any, job: Job, store: Store) -> Record:
    try:
        content: bytes = ray.get(ref)
    except StoreError as error:  # concerns every run, so it ends all, as in the other executors
        raise StoreError(str(getattr(error, "cause", error))) from error
    except ray.exceptions.RayTaskError as error:
        return failed(job, store, f"the run stopped with an error nobody expected\n{error}")
    except ray.exceptions.RayError as error:
        reason = f"the Ray worker died (killed, often out of memory), or its node: {error}"
        return failed(job, store, reason)
    if store.get(job.run.key) is None:
        raise StoreError(f"the record {job.run.key} has vanished from the store {store.where!r}")
    return Record.from_bytes(content)  # what fails does not replace a finished run


# ---- inside a worker ----------------------------------------------------------------------------


def _task(
    job_data: dict[str, Any],
    where: str,
    options: dict[str, Any],
    mark: str,
    data_root: str | None,
    board: Any,
) -> bytes:
    """The record, also one that failed."""
    settings, store, job = Options(**options), Store(where), Job.from_json(job_data)
    if store.read_checkpoint(mark) is None:
        raise StoreError(
            f"a worker on {os.uname().nodename} does not see what the driver wrote to the store"
            f" {where!r}; give a folder that all nodes share, or a URL such as s3://bucket/results"
        )
    if data_root is not None:  # the node's own root comes first
        os.environ.setdefault("FRETTA_DATA", data_root)
    post = begin_work(settings.threads or 1, job.run.key, board)

    def tell(event: Event) -> None:
        if event.kind != "ended":
            post(event.done, event.total)

    return run_one(job, store, settings, tell).to_bytes()
