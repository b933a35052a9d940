"""Worker processes: killed over a run, killed idle, left behind by a killed parent."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from executor_parts import (
    EACH,
    ONE,
    all_numbers,
    died,
    doom,
    numbers,
    only_records,
    small_jobs,
    without_weights,
)

from fretta.errors import StoreError
from fretta.experiment.execute import Event, run_jobs
from fretta.experiment.execute.processes import run_in_processes
from fretta.experiment.store import Store

pytestmark = pytest.mark.slow  # every worker imports torch


def test_a_killed_worker_is_replaced_and_its_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = small_jobs("source", "tent", "bn")
    run_jobs(jobs, Store(tmp_path / "calm"), options=ONE)
    doom(monkeypatch, tmp_path / "doom", "tent", deaths=1)
    store, events = Store(tmp_path / "store"), list[Event]()
    done = run_jobs(jobs, store, parallel=2, options=EACH, on_event=events.append)
    assert died(tmp_path / "doom") == 1
    assert sorted(r.run["method"] for r in done.records) == ["bn", "source", "tent"]
    assert all_numbers(store) == all_numbers(Store(tmp_path / "calm"))
    resumed = {r.run["method"]: r.provenance["resumed_at"] for r in done.records}
    assert resumed == {"source": 0, "bn": 0, "tent": 2}  # died after batch 3, before its checkpoint
    assert only_records(tmp_path / "store")
    for job in jobs:
        kinds = [e.kind for e in events if e.job == job and (e.kind != "batch" or e.done == 4)]
        attempts = 2 if job.run.method == "tent" else 1
        assert kinds == [*["began"] * attempts, "batch", "ended"]


def test_a_run_that_kills_every_worker_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = small_jobs("tent", "source", "bn")
    jobs[1] = without_weights(jobs[1])
    doom(monkeypatch, tmp_path / "doom", "tent", deaths=99)
    store = Store(tmp_path / "store")
    done = run_jobs(jobs, store, parallel=2, options=ONE)
    assert died(tmp_path / "doom") == 2  # once, and the one retry
    by_method = {r.run["method"]: r for r in done.records}
    assert len(done.records) == 3
    assert "exit code -9" in by_method["tent"].error
    assert "gone.safetensors" in by_method["source"].error
    assert "Traceback" in by_method["source"].error
    assert numbers(by_method["bn"])
    assert {r.run["method"]: r.status for r in store.records()} == {
        "tent": "failed",
        "source": "failed",
        "bn": "done",
    }
    monkeypatch.undo()  # whatever it was is repaired: only the failed ones are done again
    again = run_jobs(small_jobs("tent", "source", "bn"), store, options=ONE)
    assert (len(again.records), again.skipped, again.failed) == (2, 1, [])


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_killed_while_idle_costs_nothing(workers: int, tmp_path: Path) -> None:
    """No run is blamed for a worker that was dead before it, even without retries."""
    jobs, deaths = small_jobs("source", seeds=(0, 1, 2)), 0

    def kill_all(event: Event) -> None:
        nonlocal deaths
        if event.kind == "ended" and (workers == 1 or not deaths):  # one worker: idle at this point
            for child in multiprocessing.active_children():
                child.kill()
                child.join()
                deaths += 1

    options = replace(ONE, retries=workers - 1)
    done = list(run_in_processes(jobs, Store(tmp_path), options, kill_all, workers))
    assert deaths == (3 if workers == 1 else 2)
    assert [r.error for r in done] == [""] * 3
    assert {r.key for r in done} == {job.run.key for job in jobs}


def test_a_store_that_workers_do_not_share_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="share"):
        run_jobs(small_jobs("source"), Store(f"memory://{tmp_path.name}"), parallel=2, options=ONE)


PARENT = """
import multiprocessing, sys
sys.path.insert(0, {tests!r})
from executor_parts import EACH, small_jobs
from fretta.experiment.execute import run_jobs
from fretta.experiment.store import Store

def tell(event):
    if event.kind == "batch":
        print(*[child.pid for child in multiprocessing.active_children()], flush=True)

if __name__ == "__main__":
    jobs = small_jobs("g-fret", seeds=tuple(range(4)), limit=1500)
    run_jobs(jobs, Store({store!r}), parallel=2, options=EACH, on_event=tell)
"""


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    tests = str(Path(__file__).parent)
    script.write_text(PARENT.format(tests=tests, store=str(tmp_path / "store")), encoding="utf-8")
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        parent.send_signal(signal.SIGKILL)
    assert len(workers) == 2
    deadline = time.monotonic() + 10
    while any(_alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_alive(pid) for pid in workers)


def _alive(pid: int) -> bool:
    """Whether it runs; a zombie that nobody collects has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2][1] != "Z"
    except FileNotFoundError:
        return False
