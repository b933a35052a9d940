"""Runs cut off inside the stream go on bit for bit, whatever cut them off."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from executor_parts import EACH, ONE, all_numbers, numbers, only_records, small_jobs

from fretta.experiment.execute import Event, run_jobs
from fretta.experiment.records import Job
from fretta.experiment.store import Store
from fretta.methods import REGISTRY
from nets import grid

quiet = pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")  # tipi without std


class CutOff(BaseException):
    """Not an error of the run: like Ctrl-C, it leaves the run unfinished."""


def cut_off(job: Job, store: Store, after: int) -> None:
    def tell(event: Event) -> None:
        if event.kind == "batch" and event.done == after:
            raise CutOff

    with pytest.raises(CutOff):
        run_jobs([job], store, options=EACH, on_event=tell)


@quiet
@pytest.mark.parametrize("method", grid(sorted(REGISTRY), {"g-fret"}.__contains__))
def test_every_method_continues_bit_for_bit(method: str, tmp_path: Path) -> None:
    job = small_jobs(method)[0]
    (calm,) = run_jobs([job], Store(tmp_path / "calm"), options=ONE).records
    store = Store(tmp_path / "cut")
    cut_off(job, store, after=3)
    assert store.get(job.run.key) is None
    assert store.read_checkpoint(job.run.key) is not None
    batches: list[int] = []
    done = run_jobs([job], store, options=ONE, on_event=lambda e: batches.append(e.done))
    assert batches == [0, 3, 4, 0]  # began, the two batches after the checkpoint, ended
    assert numbers(done.records[0]) == numbers(calm)
    assert done.records[0].provenance["resumed_at"] == 2
    details, expected = store.details(job.run.key), Store(tmp_path / "calm").details(job.run.key)
    for found in (details, expected):
        assert found is not None
        del found["batches"]["seconds"]
    assert details == expected
    assert only_records(tmp_path / "cut")


@pytest.mark.parametrize("content", ["garbage", "half", "empty", "other method"])
def test_a_checkpoint_that_cannot_be_used_costs_only_time(content: str, tmp_path: Path) -> None:
    store, (job, other) = Store(tmp_path / "cut"), small_jobs("tent", "g-fret")
    (calm,) = run_jobs([job], Store(tmp_path / "calm"), options=ONE).records
    cut_off(job, store, after=3)
    cut_off(other, store, after=3)
    saved, foreign = (store.read_checkpoint(j.run.key) or b"" for j in (job, other))
    bad = {"garbage": b"not a checkpoint", "half": saved[: len(saved) // 2], "empty": b""}
    store.write_checkpoint(job.run.key, bad.get(content, foreign))
    (record,) = run_jobs([job], store, options=ONE).records
    assert numbers(record) == numbers(calm)
    assert record.provenance["resumed_at"] == 0
    assert store.read_checkpoint(job.run.key) is None


KILLED = """
import json, os, signal, sys, time
sys.path.insert(0, {tests!r})
from executor_parts import EACH, small_jobs
from fretta.experiment.execute import run_jobs
from fretta.experiment.store import Store

jobs = small_jobs("source", "bn", "tent", "g-fret", seeds=(0, 1), limit=320)
folder, kills, used = {folder!r}, 0, 0

def strike(inside):
    def tell(event):
        if inside and event.kind == "batch" and event.done == inside:
            os.kill(os.getpid(), signal.SIGKILL)
    return tell

for delay, inside in {moments!r}:
    while True:
        child = os.fork()  # torch is imported, but has not computed: the child starts at once
        if child == 0:
            run_jobs(jobs, Store(f"{{folder}}/{{used}}"), options=EACH, on_event=strike(inside))
            os._exit(0)
        if not inside:
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            break
        assert status == 0
        used += 1  # it was through before: go on with the next store
    kills += 1
through = run_jobs(jobs, Store(f"{{folder}}/{{used}}"), options=EACH)
print(json.dumps({{"kills": kills, "stores": used + 1, "last": len(through.records)}}))
"""


@pytest.mark.slow
def test_killed_at_twenty_moments_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    jobs = small_jobs("source", "bn", "tent", "g-fret", seeds=(0, 1), limit=320)
    begin = time.perf_counter()
    run_jobs(jobs, Store(tmp_path / "calm"), options=EACH)
    one_run = min(2.0, (time.perf_counter() - begin) / len(jobs))  # on a machine as busy as this
    calm = all_numbers(Store(tmp_path / "calm"))
    assert len(calm) == len(jobs) == 8
    # ten strikes by the clock, wherever they hit; ten after a given batch, so inside a stream
    chance = random.Random(20)
    moments = [
        (0, chance.randint(2, 18)) if number % 2 else (chance.uniform(0.1, 2.5) * one_run, 0)
        for number in range(20)
    ]
    script = tmp_path / "killed.py"
    tests = str(Path(__file__).parent)
    text = KILLED.format(tests=tests, folder=str(tmp_path / "killed"), moments=moments)
    script.write_text(text, encoding="utf-8")
    out = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    report = json.loads(out.stdout)
    assert report["kills"] == 20
    resumed = 0
    for number in range(report["stores"]):
        folder = tmp_path / "killed" / str(number)
        assert all_numbers(Store(folder)) == calm
        assert only_records(folder)
        resumed += sum(r.provenance["resumed_at"] > 0 for r in Store(folder).records())
    assert resumed > 0  # the strikes inside a stream cost only the batch in flight
