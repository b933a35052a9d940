"""What is done again and what is not: damaged records, failures, force, equal runs; its cost."""

from __future__ import annotations

import copy
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from executor_parts import ONE, all_numbers, small_jobs, without_weights
from PIL import Image
from torch import nn

import nets
from fretta.errors import ConfigError, FrettaWarning, StoreError
from fretta.experiment.case import open_case
from fretta.experiment.execute import Done, run_jobs
from fretta.experiment.records import Job, Record
from fretta.experiment.results import select
from fretta.experiment.store import Store, _Remote, open_files
from fretta.experiment.suite import jobs_on
from fretta.experiment.tune import Rule
from fretta.experiment.tune.rules import score

ROW = {"images": 10000, "accuracy": 0.7213, "ece": 0.1210031, "collapsed": False, "pass_rate": None}


def synthetic(job: Job) -> Record:
    rows = [{"domain": f"corruption {n}", **ROW} for n in range(15)]
    return Record(asdict(job.run), job.run.key, "done", dict(job.tags), rows, dict(ROW))


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


def other_key(text: str) -> str:
    return replace(Record.from_bytes(text.encode()), key="0" * 20).to_bytes().decode()


DAMAGES: list[Callable[[str], str]] = [
    lambda text: text[: len(text) // 2],
    lambda text: text.replace("0.7213,", "0.9213,", 1),
    lambda text: "",
    lambda text: json.dumps({**json.loads(text), "format": 99}),
    other_key,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_records_are_found_and_redone(
    damage: Callable[[str], str], job: Job, executed: list[Job], tmp_path: Path
) -> None:
    store, jobs = Store(tmp_path), seeds(job, 0, 1, 2)
    run_jobs(jobs, store)
    file = tmp_path / "records" / f"{jobs[1].run.key}.json"
    sound = file.read_text(encoding="utf-8")
    assert damage(sound) != sound
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


def test_runs_happen_once(job: Job, executed: list[Job], tmp_path: Path) -> None:
    """What is there is skipped unless forced; equal runs of one call are one."""
    store, jobs = Store(tmp_path / "a"), seeds(job, 0, 1)
    assert len(run_jobs(jobs, store).records) == 2
    assert run_jobs(jobs, store) == Done([], skipped=2)
    assert len(run_jobs(jobs, store, force=True).records) == 2
    assert executed == [*jobs, *jobs]
    assert len(store.keys()) == 2
    executed.clear()
    jobs = seeds(job, 3, 1, 3, 2, 1)
    jobs[2] = replace(jobs[2], tags={"suite": "another name for the same run"})
    done = run_jobs(jobs, Store(tmp_path / "b"))
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


@pytest.mark.parametrize(
    ("error", "left"), [(OSError("no space left"), b"state"), (TypeError("of a user's"), None)]
)
def test_any_error_is_recorded(
    error: Exception, left: bytes | None, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run goes on where it failed, but not where its code must change first."""

    def broken(*_: object) -> None:
        raise error

    store, key = Store(tmp_path), job.run.key
    store.write_checkpoint(key, b"state")
    monkeypatch.setattr("fretta.experiment.run._run", broken)
    (failed,) = run_jobs([job], store, options=ONE).failed
    assert f"{type(error).__name__}: {error}" in failed.error
    assert store.read_checkpoint(key) == left
    store.put(synthetic(job))
    run_jobs([job], store, force=True, options=ONE)
    assert store.read_checkpoint(key) is None  # begun again
    assert store.get(key) == synthetic(job)  # a failure does not replace it


def test_impossible_calls_fail_before_any_work(
    job: Job, executed: list[Job], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        run_jobs([job], Store(tmp_path), parallel=0)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot write"):
        run_jobs([job], Store(tmp_path / "file"))
    with pytest.raises(StoreError, match="nosuch"):
        Store("nosuch://bucket/results")
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


def test_a_remote_store_that_fails_or_remembers(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system has errors of its own, and some keep the names that they have listed."""

    class CredentialsError(Exception):
        pass

    def refuse(*_: object, **__: object) -> None:
        raise CredentialsError("no token")

    listed: dict[str, list[str]] = {}
    store, other = (Store(f"memory://fretta-{tmp_path.name}") for _ in range(2))
    files = open_files(store.where)
    assert isinstance(files, _Remote)
    ls = files.fs.ls
    monkeypatch.setattr(store, "_files", files)
    monkeypatch.setattr(files, "fs", copy.copy(files.fs))
    monkeypatch.setattr(
        files.fs, "ls", lambda path, detail: listed.setdefault(path, ls(path, detail=detail))
    )
    monkeypatch.setattr(files.fs, "invalidate_cache", lambda path: listed.pop(path, None))
    other.put(synthetic(job))
    assert store.keys() == [job.run.key]
    (second,) = seeds(job, 1)
    other.put(synthetic(second))  # by another process
    assert sorted(store.keys()) == sorted([job.run.key, second.run.key])
    for name in ("pipe_file", "makedirs"):
        monkeypatch.setattr(files.fs, name, refuse)
        with pytest.raises(StoreError, match=r"cannot write .*: no token"):
            store.put(synthetic(job))


def test_a_run_costs_the_same_however_many_there_are(
    job: Job, executed: list[Job], tmp_path: Path
) -> None:
    """Counted: reads, writes, listings of a store."""

    def accesses(store: Store) -> Counter[str]:
        counts: Counter[str] = Counter()

        def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                counts[name] += 1
                return function(*arguments)

            return call

        for name in ("read", "write", "names", "remove"):
            setattr(store._files, name, counted(name, getattr(store._files, name)))
        return counts

    stores = {count: Store(tmp_path / str(count)) for count in (10, 60)}
    few, many = map(accesses, stores.values())
    for count, store in stores.items():
        run_jobs(seeds(job, *range(count)), store, on_event=lambda event: None)
    assert many["write"] - few["write"] == 2 * 50
    assert many["read"] - few["read"] <= 2 * 50
    assert many["remove"] - few["remove"] <= 50
    assert many["names"] == few["names"]
    counts = accesses(stores[60])
    assert sum(len(record.rows) for record in stores[60].records()) == 15 * 60
    assert counts == {"names": 1, "read": 60}


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


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_repetition_that_fails_is_told_and_replaces_nothing(
    parallel: int, tmp_path: Path
) -> None:
    store, jobs = Store(tmp_path), small_jobs("source", "bn", limit=32)
    assert not run_jobs(jobs, store, options=ONE).failed
    before = all_numbers(store)
    broken = [without_weights(job) for job in jobs]
    done = run_jobs(broken, store, parallel=parallel, force=True, options=ONE)
    assert [r.status for r in done.records] == ["failed", "failed"]
    assert "gone.safetensors" in done.failed[0].error
    assert all_numbers(store) == before


@pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
def test_a_model_that_diverges_is_a_result(tmp_path: Path) -> None:
    """A rate beyond any reason: features and logits are NaN, and all of it can be stored."""
    (job,) = small_jobs("tsd")
    run = replace(job.run, hyperparameters={"lr": 1e25})
    store = Store(tmp_path)
    (record,) = run_jobs([replace(job, run=run)], store, options=ONE).records
    assert record.status == "done", record.error
    assert record.overall["entropy"] is None
    assert record.rows[-1]["accuracy"] == 0
    assert record.rows[-1]["nrs_after"] is None
    assert score(Rule.ORACLE, [record]) is None  # never chosen
    assert store.pack() == 1


def test_a_model_with_another_number_of_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody stated it: the first batch tells."""
    net = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
    monkeypatch.setattr(nets, "two", lambda: net, raising=False)
    case = open_case("nets:two", "digits", size=32, mean=[0.5] * 3, std=[0.5] * 3, device="cpu")
    (failed,) = run_jobs(
        jobs_on(case, {"source": {}}, limit=8), Store(tmp_path), options=ONE
    ).failed
    assert "the model returns 2 logits and digits has 10 classes" in failed.error


def test_what_others_write_during_a_pack_stays(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, first, second = Store(tmp_path), synthetic(job), synthetic(job)
    first.key, second.key = "1" * 20, "2" * 20
    store.put(first)

    monkeypatch.setattr(Store, "details", lambda *_: Store(tmp_path).put(second))
    assert store.pack() == 1
    assert {r.key for r in Store(tmp_path).records()} == {first.key, second.key}


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
    for cut in ('{"key": ', "[1]", "\0\0\0\0"):
        path.write_text(f"{before[1].to_bytes().decode()}\n{cut}\n")
        with pytest.raises(StoreError, match=r"line 2 of .*records\.jsonl.*is damaged"):
            list(Store(tmp_path).records([]))


def test_results_older_than_the_images_of_a_folder_are_told(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / "images" / str(number % 2)).mkdir(parents=True, exist_ok=True)
        path = tmp_path / "images" / str(number % 2) / f"{number}.png"
        Image.new("RGB", (32, 32), (20 * number,) * 3).save(path)
        os.utime(path, (0, 1e9))
    case = open_case("digits", str(tmp_path / "images"), device="cpu")
    jobs, store = jobs_on(case, {"source": {}}), Store(tmp_path / "store")
    assert not run_jobs(jobs, store, options=ONE).failed
    assert run_jobs(jobs, store, options=ONE).skipped == 1  # silently
    os.utime(path, (0, 4e9))
    with pytest.warns(FrettaWarning, match="1 of the results .* older than the newest image"):
        run_jobs(jobs, store, options=ONE)
