"""What is left to do, and what executors tell about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ...errors import StoreError
from ..provenance import provenance
from ..records import Job, Record, joined_tags
from ..store import Store


@dataclass(frozen=True)
class Options:
    """How runs are carried out. None of it decides a number, up to the rounding of threads."""

    threads: int | None = None  # per run; None: the cores divided by the number of workers
    device: str | None = None  # None: cuda if there is one
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


@dataclass
class Done:
    """What became of the jobs of one call."""

    records: list[Record] = field(default_factory=list)
    skipped: int = 0

    @property
    def failed(self) -> list[Record]:
        return [r for r in self.records if r.status != "done"]


def make_plan(jobs: list[Job], store: Store, force: bool = False) -> Plan:
    """Skip what the store has; failed and damaged records are done again."""
    plan = Plan()
    unique: dict[str, Job] = {}
    for job in jobs:
        first = unique.setdefault(job.run.key, job)
        if first is not job:  # equal runs are done once, and shown wherever they were asked for
            unique[job.run.key] = replace(first, tags=joined_tags(first.tags, job.tags))
    for key, job in unique.items():
        record = _sound(store, key)
        tags = job.tags if record is None else _names(job.tags, record.tags)
        if record is None or force or record.status != "done":
            plan.todo.append(replace(job, tags=tags))
            continue
        plan.there.append(job)
        if tags != record.tags:
            plan.renamed.append(replace(record, tags=tags))
    return plan


def _sound(store: Store, key: str) -> Record | None:
    try:
        return store.get(key)
    except StoreError:
        return None


def _names(asked: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """A run that another suite did before this one asked for it belongs to both.

    One that a search did takes the suite's tags. How its settings were chosen stays with it: a
    number tuned on target labels remains marked.
    """
    if _is_search(asked):
        return dict(known)
    if _is_search(known):
        return {**asked, "tuning": known.get("tuning", "")}
    tuning = {"tuning": known["tuning"]} if known.get("tuning") else {}
    return joined_tags(known, {**asked, **tuning})


def _is_search(tags: Mapping[str, Any]) -> bool:
    return str(tags.get("suite", "")).endswith("/tune")


def dead(job: Job, store: Store, reason: str) -> Record:
    """What is left to say when a worker died over a run once too often. Its checkpoint stays."""
    facts = dict(provenance())
    record = Record(
        asdict(job.run), job.run.key, "failed", dict(job.tags), provenance=facts, error=reason
    )
    store.put(record)
    return record
