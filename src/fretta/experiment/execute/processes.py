"""Runs in worker processes of this machine: one run at a time each, threads divided among them."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from ..._util import end_with_parent, ignoring_interrupts
from ...errors import StoreError
from ...memory import keep_memory
from ..records import Job, Record
from ..store import Store
from .jobs import Event, OnEvent, Options, cores, failed, run_one

# Before numpy and BLAS load in a worker: they would each start a thread per core.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    job: Job | None = None


def run_in_processes(
    jobs: list[Job], store: Store, options: Options, tell: OnEvent, workers: int
) -> Iterator[Record]:
    """At most one worker per job; a worker that dies is replaced and its run retried.

    Not a ProcessPoolExecutor: that one gives up all of its runs when a single worker is killed.
    """
    options = replace(options, threads=options.threads or max(1, cores() // workers))
    waiting, attempts = deque(jobs), Counter[str]()
    pool: list[_Worker] = []
    try:
        for _ in range(min(workers, len(jobs))):
            pool.append(_start(store, options))
        while waiting or any(w.job for w in pool):
            for place, worker in enumerate(pool):
                if worker.job is None and waiting:
                    if not worker.process.is_alive():  # died idle: no run is to blame
                        pool[place] = worker = _replaced(worker, store, options)
                    worker.job = waiting.popleft()
                    attempts[worker.job.run.key] += 1
                    with suppress(OSError):  # gone: the end of its pipe is read below
                        worker.pipe.send(worker.job.to_json())
            ready = wait([w.pipe for w in pool])
            for worker in [w for w in pool if w.pipe in ready]:
                job = worker.job
                try:
                    message = worker.pipe.recv()
                except (EOFError, OSError):
                    pool[pool.index(worker)] = _replaced(worker, store, options)
                    if job is not None and attempts[job.run.key] <= options.retries:
                        waiting.appendleft(job)
                    elif job is not None:
                        code = worker.process.exitcode
                        reason = "the worker process died with exit code"
                        record = failed(
                            job, store, f"{reason} {code} (-9: killed, often out of memory)"
                        )
                        tell(Event(job, "ended", record=record))
                        yield record
                    continue
                if job is not None:
                    event = _event(job, message, store)
                    tell(event)
                    if event.record is not None:
                        worker.job = None
                        yield event.record
    finally:
        for worker in pool:
            worker.pipe.close()
            worker.process.terminate()
        for worker in pool:
            worker.process.join()


def _start(store: Store, options: Options) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_work, args=(theirs, store.where, asdict(options)), daemon=False
    )
    saved = dict(os.environ)
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(options.threads)))
    try:
        with ignoring_interrupts():
            process.start()
    finally:
        for name in _THREAD_VARIABLES:
            os.environ.pop(name)
        os.environ.update(saved)
    theirs.close()
    return _Worker(process, ours)


def _replaced(worker: _Worker, store: Store, options: Options) -> _Worker:
    worker.pipe.close()
    worker.process.join()
    return _start(store, options)


def _event(job: Job, message: dict[str, Any], store: Store) -> Event:
    if message["kind"] != "ended":
        return Event(job, message["kind"], message["done"], message["total"])
    if store.get(job.run.key) is None:
        raise StoreError(
            f"the record that a worker wrote is not in the store {store.where!r}; give a folder or"
            " a URL that all processes share"
        )
    # as the worker says, not as stored: what fails does not replace a finished run
    return Event(job, "ended", record=Record.from_bytes(message["record"]))


# ---- inside a worker ----------------------------------------------------------------------------


def _work(pipe: Connection, where: str, options: dict[str, Any]) -> None:
    import torch

    end_with_parent()
    settings, store = Options(**options), Store(where)
    torch.set_num_threads(settings.threads or 1)
    keep_memory()

    def tell(event: Event) -> None:
        content = None if event.record is None else event.record.to_bytes()
        pipe.send({"kind": event.kind, "done": event.done, "total": event.total, "record": content})

    while True:
        try:
            job = Job.from_json(pipe.recv())
        except EOFError:
            return
        run_one(job, store, settings, tell)
