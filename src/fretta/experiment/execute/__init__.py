"""Where runs happen: in this process, in worker processes, on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...errors import ConfigError, warn
from ...parts.compute import find_device
from ..records import Job, Record
from ..store import Store
from .jobs import Event, OnEvent, Options, Plan, make_plan, run_here
from .processes import run_in_processes

__all__ = ["Done", "Event", "OnEvent", "Options", "Plan", "make_plan", "run_jobs"]


@dataclass
class Done:
    """What became of the jobs of one call."""

    records: list[Record] = field(default_factory=list)
    skipped: int = 0

    @property
    def failed(self) -> list[Record]:
        return [r for r in self.records if r.status != "done"]


def run_jobs(
    jobs: list[Job],
    store: Store,
    *,
    parallel: int = 1,
    ray: str | None = None,
    force: bool = False,
    options: Options | None = None,
    on_event: OnEvent | None = None,
) -> Done:
    """Do what the store does not have yet.

    parallel   worker processes on this machine; 1 stays in this process
    ray        address of a Ray cluster ("auto", "local", "host:port"); None: no Ray
    force      repeat what is there, from the beginning
    """
    if parallel < 1:
        raise ConfigError(f"parallel={parallel!r} cannot work; use at least 1 process")
    settings, tell = options or Options(), on_event or (lambda event: None)
    if settings.device is not None and ray is None:  # of Ray it is the workers' device
        find_device(settings.device)  # not there: an error now, not a failure of every run
    store.check()
    plan = make_plan(jobs, store, force)
    if plan.older:
        warn(
            f"{plan.older} of the results that are there are older than the newest image; if the"
            " images changed, repeat the runs: --force (force=True)"
        )
    for job in plan.todo if force else ():
        store.drop_checkpoint(job.run.key)
    for record in plan.renamed:
        store.put(record)
    for job in plan.there:
        tell(Event(job, "there"))
    records: Iterator[Record] = iter(())
    if plan.todo and ray is not None:
        from .ray_cluster import run_on_ray

        records = run_on_ray(plan.todo, store, settings, tell, ray)
    elif plan.todo and parallel > 1:
        records = run_in_processes(plan.todo, store, settings, tell, parallel)
    elif plan.todo:
        records = run_here(plan.todo, store, settings, tell)
    return Done(list(records), len(plan.there))
