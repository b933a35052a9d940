"""Choose an executor and run what is left."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import ConfigError
from ...parts.compute import find_device
from ..records import Job, Record
from ..store import Store
from .local import run_here
from .plan import Done, Event, OnEvent, Options, make_plan
from .processes import run_in_processes


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
    force      repeat what is there
    """
    if parallel < 1:
        raise ConfigError(f"parallel={parallel!r} cannot work; use at least 1 process")
    settings = options or Options()
    if settings.device is not None:
        find_device(settings.device)  # not there: an error now, not a failure of every run
    store.check()
    plan = make_plan(jobs, store, force)
    for record in plan.renamed:
        store.put(record)
    done = Done(skipped=len(plan.there))

    def tell(event: Event) -> None:
        if on_event is not None:
            on_event(event)

    for job in plan.there:
        tell(Event(job, "there"))
    records: Iterator[Record]
    if not plan.todo:
        return done
    if ray is not None:
        from .ray_cluster import run_on_ray

        records = run_on_ray(plan.todo, store, settings, tell, ray)
    elif parallel > 1:
        records = run_in_processes(plan.todo, store, settings, tell, parallel)
    else:
        records = run_here(plan.todo, store, settings, tell)
    done.records.extend(records)
    return done
