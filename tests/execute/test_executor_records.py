"""What is done again and what is not: damaged records, failures, force, equal runs; its cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from executor_parts import ONE, all_numbers, small_jobs, without_weights

from fretta.errors import ConfigError, StoreError
from fretta.experiment.execute import Done, run_jobs
from fretta.experiment.records import Job, Record
from fretta.experiment.results import select
from fretta.experiment.store import Store

ROW = {
    "images": 10000,
    "accuracy": 0.7213,
    "accuracy_macro": 0.72130001,
    "ece": 0.1210031,
    "nll": 1.2134513123,
    "entropy": 0.3123123123,
    "predicted_classes": 9.712312,
    "collapsed": False,
    "pass_rate": None,
    "batches": 79,
    "seconds_per_batch": 0.0123123,
    "nrs_before": 0.62799626,
    "nrs_after": 0.5279962,
    "passes": "1F + 1B",
}


def synthetic(job: Job) -> Record:
    """A record of the size of a real one, with 15 domains."""
    rows = [{"domain": f"corruption {n}", **ROW} for n in range(15)]
    facts = {"torch": "2.13", "processor": "unknown", "cores": 2, "commit": "0" * 40}
    return Record(
        asdict(job.run),
        job.run.key,
        "done",
        dict(job.tags),
        rows,
        {"mean_over_domains": ROW["accuracy"], **ROW},
        {"lr": 1e-3, "steps": 1},
        facts,
    )


@pytest.fixture(scope="module")
def job() -> Job:
    return small_jobs("source")[0]


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Runs that only put a record: the jobs that were executed, in order."""
    seen: list[Job] = []

    def execute(job: Job, store: Store, **_: Any) -> Record:
        seen.append(job)
        record = synthetic(job)
        store.put(record, {"batches": {}})
        return record

    monkeypatch.setattr("fretta.experiment.execute.jobs.execute", execute)
    return seen


def seeds(job: Job, *values: int) -> list[Job]:
    return [replace(job, run=replace(job.run, seed=value)) for value in values]


def cut(text: str) -> str:
    return text[: len(text) // 2]


def edit(text: str) -> str:
    assert "0.7213," in text
    return text.replace("0.7213,", "0.9213,", 1)


def empty(text: str) -> str:
    return ""


def other_format(text: str) -> str:
    return json.dumps({**json.loads(text), "format": 99})


def other_key(text: str) -> str:
    data = json.loads(text)
    names = ("run", "status", "tags", "rows", "overall", "settings", "provenance", "error")
    record = Record(**{name: data[name] for name in names}, key="0" * 20)
    return record.to_bytes().decode()


@pytest.mark.parametrize("damage", [cut, edit, empty, other_format, other_key])
def test_damaged_records_are_found_and_redone(
    damage: Callable[[str], str], job: Job, executed: list[Job], tmp_path: Path
) -> None:
    store, jobs = Store(tmp_path), seeds(job, 0, 1, 2)
    run_jobs(jobs, store)
    file = tmp_path / "records" / f"{jobs[1].run.key}.json"
    sound = file.read_text(encoding="utf-8")
    file.write_text(damage(sound), encoding="utf-8")
    with pytest.raises(StoreError, match=r"damaged|format|another run"):
        store.get(jobs[1].run.key)
    messages: list[str] = []
    assert len(list(store.records(messages))) == 2
    assert len(messages) == 1
    assert file.name in messages[0]
    executed.clear()
    done = run_jobs(jobs, store)
    assert executed == [jobs[1]]
    assert done.skipped == 2
    assert file.read_text(encoding="utf-8") == sound


def test_what_is_there_is_skipped_unless_forced(
    job: Job, executed: list[Job], tmp_path: Path
) -> None:
    store, jobs = Store(tmp_path), seeds(job, 0, 1)
    assert len(run_jobs(jobs, store).records) == 2
    assert run_jobs(jobs, store) == Done([], skipped=2)
    assert len(executed) == 2
    assert len(run_jobs(jobs, store, force=True).records) == 2
    assert executed == [*jobs, *jobs]
    assert len(store.keys()) == 2


def test_equal_runs_happen_once(job: Job, executed: list[Job], tmp_path: Path) -> None:
    jobs = seeds(job, 3, 1, 3, 2, 1)
    jobs[2] = replace(jobs[2], tags={"suite": "another name for the same run"})
    done = run_jobs(jobs, Store(tmp_path))
    by_seed = sorted(executed, key=lambda j: j.run.seed)
    assert [j.run for j in by_seed] == [jobs[1].run, jobs[3].run, jobs[0].run]
    assert by_seed[2].tags == {**jobs[0].tags, "also": [jobs[2].tags]}
    assert (len(done.records), done.skipped) == (3, 0)


def test_a_failing_run_is_recorded_and_does_not_stop_the_others(tmp_path: Path) -> None:
    store, jobs = Store(tmp_path), small_jobs("source", "bn", "tent")
    broken = [jobs[0], without_weights(jobs[1]), jobs[2]]
    done = run_jobs(broken, store, options=ONE)
    assert [r.status for r in done.records] == ["done", "failed", "done"]
    failed = store.get(jobs[1].run.key)
    assert failed is not None
    assert [failed] == done.failed
    assert failed.error.startswith("Traceback")
    assert "gone.safetensors" in failed.error
    assert failed.rows == []
    assert failed.provenance["torch"]
    again = run_jobs(jobs, store, options=ONE)
    assert (again.skipped, again.failed, len(again.records)) == (2, [], 1)
    assert len(all_numbers(store)) == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["details", "records"]


def test_impossible_calls_fail_before_any_work(
    job: Job, executed: list[Job], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        run_jobs([job], Store(tmp_path), parallel=0)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot write"):
        run_jobs([job], Store(tmp_path / "file"))
    assert executed == []


@pytest.mark.parametrize("url", ["memory://fretta-{name}", "file://{folder}/below/results"])
def test_a_store_may_be_a_url(url: str, job: Job, executed: list[Job], tmp_path: Path) -> None:
    store, jobs = Store(url.format(name=tmp_path.name, folder=tmp_path)), seeds(job, 0, 1)
    assert (store.keys(), store.get("0" * 20), store.local) == ([], None, None)
    done = run_jobs(jobs, store)
    again = Store(store.where)
    assert sorted(again.keys()) == sorted(j.run.key for j in jobs)
    assert [again.get(r.key) for r in done.records] == done.records
    assert again.details(jobs[0].run.key) == {"batches": {}}
    assert run_jobs(jobs, again).skipped == 2
    again.write_checkpoint("k", b"\x00state")
    assert again.read_checkpoint("k") == b"\x00state"
    again.drop_checkpoint("k")
    again.drop_checkpoint("k")
    assert again.read_checkpoint("k") is None


def test_a_url_nobody_knows_is_refused() -> None:
    with pytest.raises(StoreError, match="nosuch"):
        Store("nosuch://bucket/results")


# ---- what it costs: counted, not timed ----------------------------------------------------------


def accesses(store: Store) -> Counter[str]:
    """How often the store reads, writes, lists and removes, from now on."""
    counts: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            counts[name] += 1
            return function(*arguments)

        return call

    for name in ("read", "write", "names", "remove"):
        setattr(store._files, name, counted(name, getattr(store._files, name)))
    return counts


def test_a_run_costs_the_same_however_many_there_are(
    job: Job, executed: list[Job], tmp_path: Path
) -> None:
    """Planning, writing the record and its details, telling: all but the run itself."""
    costs = []
    for count in (10, 60):
        store = Store(tmp_path / str(count))
        counts = accesses(store)
        run_jobs(seeds(job, *range(count)), store, on_event=lambda event: None)
        costs.append(counts)
    assert len(executed) == 70
    few, many = costs
    assert many["write"] - few["write"] == 2 * 50
    assert many["read"] - few["read"] <= 2 * 50
    assert many["remove"] - few["remove"] <= 50
    assert many["names"] == few["names"]


def test_many_records_are_listed_once_and_read_once(job: Job, tmp_path: Path) -> None:
    record = synthetic(job)
    (tmp_path / "records").mkdir()
    for number in range(500):
        record.key = f"{number:020d}"
        (tmp_path / "records" / f"{record.key}.json").write_bytes(record.to_bytes())
    store = Store(tmp_path)
    counts = accesses(store)
    assert sum(len(record.rows) for record in store.records()) == 15 * 500
    assert counts == {"names": 1, "read": 500}


def test_a_run_that_two_suites_share_belongs_to_both(
    job: Job, executed: list[Job], tmp_path: Path
) -> None:
    """It is done once; the second suite adds its names, a new title replaces the old one."""
    store = Store(tmp_path)
    other = replace(job, tags={"suite": "other", "case": "c", "label": "as it came"})
    twin = replace(job, tags={**job.tags, "label": "the same again"})
    run_jobs([job, twin], store)
    run_jobs([other], store)
    renamed = replace(other, tags={**other.tags, "title": "Another"})
    assert run_jobs([renamed], store).skipped == 1
    assert len(executed) == 1
    record = store.get(job.run.key)
    assert record is not None
    assert [r.tags for r in record.in_suites()] == [job.tags, twin.tags, renamed.tags]
    assert [r.tags["label"] for r in select([record], suite="other")] == ["as it came"]
    search = replace(job, tags={**job.tags, "suite": "small/tune", "tuning": "oracle"})
    run_jobs([search], store)  # looks at it, and does not make it its own
    assert store.get(job.run.key) == record
    run_jobs([job], store, force=True)
    assert len(executed) == 2
    again = store.get(job.run.key)
    assert again is not None
    assert again.tags == record.tags
    assert store.details(job.run.key) is not None


def test_a_packed_store_says_the_same(job: Job, tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(3):
        record = synthetic(job)
        record.key = f"{number:020d}"
        store.put(record, {"batches": [number]} if number else None)
    before = list(store.records())
    assert store.pack() == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["details.jsonl.gz", "records.jsonl"]
    packed = Store(tmp_path)
    assert list(packed.records()) == before
    assert [packed.details(r.key) for r in before] == [None, {"batches": [1]}, {"batches": [2]}]
    # single files beside the pack win, and the next pack takes them in
    newer = replace(before[0], tags={**before[0].tags, "label": "newer"})
    packed.put(newer)
    assert packed.get(newer.key) == newer
    assert packed.pack() == 3
    assert list(Store(tmp_path).records()) == [newer, *before[1:]]
    # an edited line is noticed like an edited file
    path = tmp_path / "records.jsonl"
    path.write_text(path.read_text().replace('"newer"', '"older"'))
    damaged: list[str] = []
    assert list(Store(tmp_path).records(damaged)) == before[1:]
    assert len(damaged) == 1
