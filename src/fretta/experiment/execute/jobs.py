"""What is left to do, one run with its events, and what becomes of a run whose worker died."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from ...data.domain import ImageFiles
from ...errors import StoreError
from ..provenance import provenance
from ..records import Job, Record, joined_tags
from ..run import execute
from ..store import Store


@dataclass(frozen=True)
class Options:
    """How runs are executed. None of it decides a number, up to the rounding of threads."""

    threads: int | None = None  # per run; None: the cores divided by the number of workers
    device: str | None = None  # None: cuda if there is one; on Ray the cpu
    workers: int = 0  # processes that decode images, per run
    checkpoint_seconds: float = 60.0
    retries: int = 1  # after a worker died


@dataclass(frozen=True)
class Event:
    """A run was there already, began, went on, or ended."""

    job: Job
    kind: str  # "there", "began", "batch", "ended"
    done: int = 0
    total: int = 0
    record: Record | None = None


OnEvent = Callable[[Event], None]


@dataclass
class Plan:
    """The jobs to do, each run once, and those that are already there."""

    todo: list[Job] = field(default_factory=list)
    there: list[Job] = field(default_factory=list)
    renamed: list[Record] = field(default_factory=list)  # that belong to one more suite now
    older: int = 0  # of those that are there: images of the user's folder are newer


def make_plan(jobs: list[Job], store: Store, force: bool = False) -> Plan:
    """Skip what the store has; failed and damaged records are done again."""
    plan, changed = Plan(), {}  # when the images of a data set changed
    unique: dict[str, Job] = {}
    for job in jobs:
        first = unique.setdefault(job.run.key, job)
        if first is not job:  # equal runs are done once, and shown in every suite that has them
            unique[job.run.key] = replace(first, tags=joined_tags(first.tags, job.tags))
    for key, job in unique.items():
        try:
            record = store.get(key)
        except StoreError:
            record = None
        tags = job.tags if record is None else _joined(job.tags, record.tags)
        if record is None or force or record.status != "done":
            plan.todo.append(replace(job, tags=tags))
            continue
        plan.there.append(job)
        if job.dataset is not None and job.dataset.name == "folder":
            if id(job.dataset) not in changed:
                sources = (domain.source for domain in job.dataset.domains)
                files = (s for s in sources if isinstance(s, ImageFiles))
                changed[id(job.dataset)] = max((s.changed() for s in files), default=0.0)
            finished = record.provenance.get("finished", math.inf)
            plan.older += changed[id(job.dataset)] > finished + 1  # stored in whole seconds
        if tags != record.tags:
            plan.renamed.append(replace(record, tags=tags))
    return plan


def _joined(new: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """A run of several suites belongs to all of them; one of a search takes the suite's tags.

    How its settings were chosen stays with it: a number tuned on target labels remains marked.
    """
    if _is_search(new):
        return dict(known)
    if _is_search(known):
        return {**new, "tuning": known.get("tuning", "")}
    tuning = {"tuning": known["tuning"]} if known.get("tuning") else {}
    return joined_tags(known, {**new, **tuning})


def _is_search(tags: Mapping[str, Any]) -> bool:
    return str(tags.get("suite", "")).endswith("/tune")


def cores() -> int:
    """Cores this process may use; no more than OMP_NUM_THREADS allows."""
    affinity = getattr(os, "sched_getaffinity", None)
    found = len(affinity(0)) if affinity else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(found, int(limit)) if limit.isdigit() and int(limit) > 0 else found


def run_one(job: Job, store: Store, options: Options, tell: OnEvent) -> Record:
    """One run with its events. Used by every executor."""
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
    """In this process, one after another."""
    before = torch.get_num_threads()
    torch.set_num_threads(options.threads or cores())
    try:
        for job in jobs:
            yield run_one(job, store, options, tell)
    finally:
        torch.set_num_threads(before)


def failed(job: Job, store: Store, reason: str) -> Record:
    """The record of a run whose worker died too often. Its checkpoint stays."""
    record = Record(
        *(asdict(job.run), job.run.key, "failed", dict(job.tags)),
        provenance=dict(provenance()),
        error=reason,
    )
    store.put(record)
    return record
