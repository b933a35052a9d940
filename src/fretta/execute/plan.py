"""What is left to do, and what executors tell about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from ..provenance import provenance
from ..records import Job, Record
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
        unique.setdefault(job.run.key, job)  # the first of equal runs wins
    for key, job in unique.items():
        (plan.there if not force and store.done(key) else plan.todo).append(job)
    return plan


def dead(job: Job, store: Store, reason: str) -> Record:
    """What is left to say when a worker died over a run once too often. Its checkpoint stays."""
    facts = dict(provenance())
    record = Record(
        asdict(job.run), job.run.key, "failed", dict(job.tags), provenance=facts, error=reason
    )
    store.put(record)
    return record
