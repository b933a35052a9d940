"""Carry out jobs and show how they go."""

from __future__ import annotations

import os
import time
from typing import Any

import typer

from .app import say
from .live import watching
from .tables import print_methods


def carry_out(
    title: str,
    work: list[Any],
    where: str,
    jobs: int,
    ray: str | None,
    force: bool,
    options: Any,
) -> None:
    """Run the jobs, show them live, print the table; exit code 1 if any failed."""
    from ..experiment.execute import run_jobs
    from ..experiment.results import select
    from ..experiment.store import Store

    store = Store(where)
    begin = time.perf_counter()
    with watching(work) as on_event:
        done = run_jobs(
            work, store, parallel=jobs, ray=ray, force=force, options=options, on_event=on_event
        )
    found = (store.get(key) for key in dict.fromkeys(j.run.key for j in work))
    records = select((r for r in found if r), work[0].tags.get("suite"))
    say(f"\n{title}: mean accuracy over domains of the predictions made on the way\n")
    print_methods(records)
    say(
        f"\n{len(done.records)} runs in {time.perf_counter() - begin:.0f} s, {done.skipped} were"
        f" there already. Records: {os.path.join(where, 'records')}"
    )
    for record in done.failed:
        last = record.error.strip().splitlines()[-1] if record.error else "unknown"
        say(f"failed: {record.tags.get('case')} {record.tags.get('label')} ({record.key}): {last}")
    if done.failed:
        raise typer.Exit(1)
