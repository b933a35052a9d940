"""Runs of benchmarks/streams.py and their records, one line each.

A run has the library's own key (data, weights, method, defaults, order, seed), which says whether
it is recorded already, here or among the records of the suites.
"""

from __future__ import annotations

import fcntl
import json
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from stream_list import PLANS, Plan, kept_stream, open_plan

from fretta.errors import FrettaError
from fretta.experiment.case import Case
from fretta.experiment.loop import Item, stream_through
from fretta.experiment.provenance import provenance
from fretta.experiment.records import Run
from fretta.experiment.store import Store

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "evidence"
PROVENANCE = ("fretta", "commit", "torch", "processor", "cores")


@dataclass(frozen=True)
class Settings:
    """What a worker process needs to know."""

    records: Path
    cache: Path
    threads: int
    again: float  # records from before this time do not count


@dataclass(frozen=True)
class Wanted:
    """One run, by names."""

    stream: str
    method: str
    seed: int


# ---- records ------------------------------------------------------------------------------------


def read_records(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def append(path: Path, record: dict[str, Any]) -> None:
    """One line in one write, under a lock: several processes may do so at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(record, sort_keys=True, allow_nan=False) + "\n"
    with path.open("ab", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(line.encode())


@contextmanager
def claimed(folder: Path, key: str) -> Iterator[bool]:
    """Whether nobody else works on this run; the claim ends with the process at the latest."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / key).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def done(records: list[dict[str, Any]], run: Run, again: float) -> bool:
    return any(
        r["key"] == run.key and r["accuracy"] is not None and r["finished"] >= again
        for r in records
    )


# ---- runs ---------------------------------------------------------------------------------------


def identity(case: Case, plan: Plan, wanted: Wanted) -> Run:
    """The library's identity of the run: data, weights, method, defaults, order, seed."""
    return case.run(
        wanted.method,
        {},
        plan.order,
        plan.batch_size,
        wanted.seed,
        plan.order_options(wanted.seed),
    )


def measure(case: Case, plan: Plan, wanted: Wanted, cache: Path) -> dict[str, Any]:
    """Accuracy along the stream, and time inside the adapter."""
    seed, options = wanted.seed, plan.order_options(wanted.seed)
    stream = case.stream(plan.order, seed=seed, batch_size=plan.batch_size, **options)
    stream = kept_stream(stream, cache / "pixels")
    reading = 0.0

    def items() -> Iterator[Item]:
        nonlocal reading
        found = case.items(stream)
        while True:
            begin = time.process_time()
            item = next(found, None)
            reading += time.process_time() - begin
            if item is None:
                return
            yield item

    adapter = case.adapter(wanted.method)
    begin, seconds = time.process_time(), 0.0
    images = torch.zeros(len(case.data.classes))  # by class
    correct = torch.zeros_like(images)
    for item, steps in stream_through({"": adapter}, items()):
        right = steps[""].logits.argmax(1) == item.y
        images += torch.bincount(item.y, minlength=len(images))
        correct += torch.bincount(item.y[right], minlength=len(images))
        seconds += steps[""].seconds
    return {
        "accuracy": float(correct.sum()) / stream.samples,
        "accuracy_macro": float((correct / images)[images > 0].mean()),
        "images": stream.samples,
        "seconds": round(seconds, 3),
        "cpu_seconds": round(time.process_time() - begin - reading, 3),
        "hyperparameters": adapter.hyperparameters,
        "origin": "run",
    }


@cache
def suites() -> Store:
    return Store(EVIDENCE)  # reads its file once


def stored(run: Run) -> dict[str, Any] | None:
    """The same run among the committed records of the suites."""
    found = suites().get(run.key)
    if found is None or found.status != "done":
        return None
    return {
        "accuracy": found.overall["accuracy"],
        "accuracy_macro": found.overall["accuracy_macro"],
        "images": found.overall["images"],
        "seconds": round(found.overall["seconds"], 3),
        "cpu_seconds": None,
        "hyperparameters": {k: v for k, v in found.settings.items() if k != "predict"},
        "origin": f"evidence/records.jsonl, suite {found.tags['suite']}",
        "changed": found.provenance.get("dirty"),
        **{k: found.provenance.get(k) for k in (*PROVENANCE, "threads")},
    }


def attempt(wanted: Wanted, settings: Settings) -> str:
    """Do a run if it is not recorded; a line that says what came of it."""
    plan = PLANS[wanted.stream]
    title = f"{wanted.stream} {wanted.method} seed {wanted.seed}"
    try:
        case = open_plan(wanted.stream)
        run = identity(case, plan, wanted)
    except FrettaError as error:
        return f"{title}: cannot be opened: {error}"
    with claimed(settings.cache / "claims", run.key) as mine:
        if not mine or done(read_records(settings.records), run, settings.again):
            return ""
        facts = {k: provenance()[k] for k in PROVENANCE}
        record: dict[str, Any] = {
            "stream": wanted.stream,
            "title": plan.title,
            "method": wanted.method,
            "seed": wanted.seed,
            "key": run.key,
            "order": run.order,
            "order_options": run.order_options,
            "batch_size": run.batch_size,
            "settings": "default",
            "accuracy": None,
            "error": "",
            **facts,
            "changed": provenance()["dirty"],
            "threads": settings.threads,
        }
        try:
            found = None if settings.again else stored(run)
            record.update(found or measure(case, plan, wanted, settings.cache))
        except Exception as error:  # noqa: BLE001  whatever a method raises is its result
            record["error"] = "".join(traceback.format_exception(error)[-3:])
        append(settings.records, {**record, "finished": int(time.time())})
    if record["error"]:
        return f"{title}: failed: {record['error'].strip().splitlines()[-1]}"
    taken = "" if record["origin"] == "run" else f", from {record['origin']}"
    return f"{title}: {100 * record['accuracy']:.2f} % ({record['seconds']:.1f} s{taken})"
