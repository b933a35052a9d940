"""Small suites, what of a record must be equal, and workers that kill themselves."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fretta.experiment.execute import Event, Options, processes
from fretta.experiment.records import Job, Record
from fretta.experiment.store import Store
from fretta.experiment.suite import parse_suite

TIMING = {"seconds", "seconds_per_batch"}
ONE = Options(threads=1, device="cpu")
EACH = Options(threads=1, device="cpu", checkpoint_seconds=0.0)  # a checkpoint after each batch

SUITE = """
[protocol]
batch_size = 32
seeds = {seeds}
limit = {limit}
domains = ["gaussian_noise", "fog"]
[[cases]]
data = {{ name = "digits" }}
model = {{ source = "digits" }}
source = {{ name = "digits", split = "train" }}
"""


def small_jobs(
    *methods: str, seeds: tuple[int, ...] = (0,), limit: int = 64, name: str = "small"
) -> list[Job]:
    """Two domains of `limit` digits in batches of 32: 2 · limit / 32 batches."""
    text = SUITE.format(seeds=list(seeds), limit=limit)
    text += "".join(f'[[methods]]\nname = "{method}"\n' for method in methods)
    return parse_suite(text, name).jobs()


def numbers(record: Record) -> dict[str, Any]:
    """All that must not depend on where and how often a run was started."""
    rows = [{k: v for k, v in row.items() if k not in TIMING} for row in record.rows]
    overall = {k: v for k, v in record.overall.items() if k not in TIMING}
    assert record.status == "done", record.error
    return {"run": record.run, "rows": rows, "overall": overall, "settings": record.settings}


def all_numbers(store: Store) -> dict[str, dict[str, Any]]:
    """By key; raises if any record is damaged."""
    return {record.key: numbers(record) for record in store.records()}


def only_records(folder: Path) -> bool:
    """No checkpoint is left in a local store. Drafts of a killed writer (.name) do not count."""
    found = [p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")]
    return {p.parent.name for p in found} == {"records", "details"}


def without_weights(job: Job) -> Job:
    """The same run where the weights file is gone."""
    return replace(job, place=replace(job.place, weights="gone.safetensors"))


# ---- workers that die ---------------------------------------------------------------------------


def doom(monkeypatch: Any, folder: Path, method: str, deaths: int, at: int = 3) -> None:
    """Worker processes started from now on kill themselves `deaths` times over this method."""
    folder.mkdir()
    plan = {"folder": str(folder), "method": method, "deaths": deaths, "at": at}
    monkeypatch.setenv("FRETTA_TEST_DOOM", json.dumps(plan))
    monkeypatch.setattr(processes, "_work", doomed_work)


def doomed_work(pipe: Connection, where: str, options: dict[str, Any]) -> None:
    """In the place of processes._work, inside a worker."""
    import fretta.experiment.execute.processes as fresh

    plan, plain = json.loads(os.environ["FRETTA_TEST_DOOM"]), fresh.run_one

    def run_one(job: Job, store: Store, options: Options, tell: Any) -> Record:
        def tell_and_die(event: Event) -> None:
            tell(event)
            folder = Path(plan["folder"])
            due = event.kind == "batch" and event.done == plan["at"]
            if due and job.run.method == plan["method"] and died(folder) < plan["deaths"]:
                (folder / f"{os.getpid()}").touch()
                os.kill(os.getpid(), signal.SIGKILL)

        return plain(job, store, options, tell_and_die)

    fresh.run_one = run_one
    fresh._work(pipe, where, options)


def died(folder: Path) -> int:
    return len(list(folder.iterdir()))
