"""Runs in this process, one after another."""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch

from ..records import Job, Record
from ..run import execute
from ..store import Store
from .plan import Event, OnEvent, Options


def cores() -> int:
    """Cores this process may use; no more than OMP_NUM_THREADS allows."""
    found = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(found, int(asked)) if asked.isdigit() and int(asked) > 0 else found


def run_one(job: Job, store: Store, options: Options, tell: OnEvent) -> Record:
    """One run with its events. Used by every executor, wherever it happens."""
    tell(Event(job, "began"))
    record = execute(
        job,
        store,
        device=options.device,
        workers=options.workers,
        checkpoint_seconds=options.checkpoint_seconds,
        on_batch=lambda done, total: tell(Event(job, "batch", done, total)),
    )
    tell(Event(job, "ended", record=record))
    return record


def run_here(jobs: list[Job], store: Store, options: Options, tell: OnEvent) -> Iterator[Record]:
    before = torch.get_num_threads()
    torch.set_num_threads(options.threads or cores())
    try:
        for job in jobs:
            yield run_one(job, store, options, tell)
    finally:
        torch.set_num_threads(before)
