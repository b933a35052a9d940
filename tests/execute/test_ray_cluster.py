"""Runs on a local Ray cluster: the same numbers, dead workers, and the page that explains it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from executor_parts import EACH, ONE, all_numbers, numbers, only_records, small_jobs
from typer.testing import CliRunner

from fretta.cli import app
from fretta.errors import ConfigError, MissingExtraError, StoreError
from fretta.experiment.execute import Event, ray_cluster, run_jobs
from fretta.experiment.execute import cluster as clusters
from fretta.experiment.store import Store

PAGE = Path(__file__).parents[2] / "docs" / "ray.md"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two workers that stay while the tests of this file go on."""
    ray = pytest.importorskip("ray")
    clusters.join(ray, "local", threads=1)
    yield ray
    ray.shutdown()


def doomed(folder: Path, method: str, deaths: int, at: int) -> Callable[..., bytes]:
    """A task that kills its worker; nested, so that it travels by value."""

    def task(*arguments: Any) -> bytes:
        import os
        import pathlib
        import signal

        import fretta.experiment.execute.ray_cluster as inside

        plain = inside.run_one

        def run_one(job: Any, store: Any, options: Any, tell: Any) -> Any:
            def tell_and_die(event: Any) -> None:
                tell(event)
                place = pathlib.Path(folder)
                due = event.kind == "batch" and event.done == at and job.run.method == method
                if due and len(list(place.iterdir())) < deaths:
                    (place / str(os.getpid())).touch()
                    os.kill(os.getpid(), signal.SIGKILL)

            return plain(job, store, options, tell_and_die)

        inside.run_one = run_one
        try:
            return inside._task(*arguments)
        finally:
            inside.run_one = plain

    folder.mkdir()
    return task


@pytest.mark.ray
def test_one_process_two_processes_and_ray_give_identical_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")
    jobs = small_jobs("source", "tent", "g-fret", seeds=(0, 1))
    run_jobs(jobs, Store(tmp_path / "here"), options=ONE)
    here = all_numbers(Store(tmp_path / "here"))
    run_jobs(jobs, Store(tmp_path / "processes"), parallel=2, options=ONE)
    assert all_numbers(Store(tmp_path / "processes")) == here

    monkeypatch.chdir(tmp_path)  # a relative store must mean this folder for workers too
    events: list[Event] = []
    done = run_jobs(jobs, Store("ray"), ray="local", options=ONE, on_event=events.append)
    assert not ray.is_initialized()  # what the call started, it ended
    assert len(done.records) == len(here) == 6
    assert all_numbers(Store(tmp_path / "ray")) == here
    assert {r.key: numbers(r) for r in done.records} == here
    assert {r.provenance["threads"] for r in done.records} == {1}
    assert only_records(tmp_path / "ray")
    for job in jobs:
        assert [e.kind for e in events if e.job == job and e.kind != "batch"] == ["began", "ended"]
    assert run_jobs(jobs, Store("ray"), ray="local").skipped == 6


@pytest.mark.ray
def test_a_killed_ray_worker_costs_nothing_twice_and_its_run_alone(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = small_jobs("source", "tent", "g-fret", seeds=(0, 1), limit=128)
    run_jobs(jobs, Store(tmp_path / "calm"), options=ONE)
    monkeypatch.setattr(ray_cluster, "_task", doomed(tmp_path / "doom", "tent", deaths=1, at=4))
    done = run_jobs(jobs, Store(tmp_path / "store"), ray="local", options=EACH)
    assert [record.error for record in done.failed] == []
    assert len(list((tmp_path / "doom").iterdir())) == 1
    assert sorted(r.key for r in done.records) == sorted(job.run.key for job in jobs)
    assert all_numbers(Store(tmp_path / "store")) == all_numbers(Store(tmp_path / "calm"))
    assert sorted(r.provenance["resumed_at"] for r in done.records) == [0, 0, 0, 0, 0, 3]
    assert only_records(tmp_path / "store")
    assert cluster.is_initialized()  # not ours to end

    monkeypatch.setattr(ray_cluster, "_task", doomed(tmp_path / "again", "tent", 2, at=2))
    store = Store(tmp_path / "fails")
    done = run_jobs([jobs[0], jobs[2]], store, ray="local", options=ONE)
    assert {r.run["method"]: r.status for r in store.records()} == {
        "source": "done",
        "tent": "failed",
    }
    (failed,) = done.failed
    assert "worker died" in failed.error


def held() -> Callable[..., bytes]:
    """A task that stays at its third batch until it is canceled; nested as above."""

    def task(*arguments: Any) -> bytes:
        import time

        import fretta.experiment.execute.ray_cluster as inside

        plain = inside.run_one

        def run_one(job: Any, store: Any, options: Any, tell: Any) -> Any:
            def tell_and_stay(event: Any) -> None:
                tell(event)
                while event.kind == "batch" and event.done == 3:
                    time.sleep(0.1)
                    tell(event)

            return plain(job, store, options, tell_and_stay)

        inside.run_one = run_one
        try:
            return inside._task(*arguments)
        finally:
            inside.run_one = plain

    return task


@pytest.mark.ray
def test_interrupted_and_impossible_calls(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, store = small_jobs("g-fret", seeds=(0, 1)), Store(tmp_path)
    listed: list[str] = []  # what a driver that is killed would leave

    def interrupt(event: Event) -> None:
        if event.kind == "batch" and event.done > 1:
            listed.extend(store._files.names("checkpoints"))
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ray_cluster, "_task", held())
        with pytest.raises(KeyboardInterrupt):
            run_jobs(jobs, store, ray="local", options=EACH, on_event=interrupt)
    assert store.keys() == []
    assert {name.removesuffix(".pt") for name in listed} <= {job.run.key for job in jobs}
    assert not list((tmp_path / "checkpoints").glob(".seen-*"))
    done = run_jobs(jobs, store, ray="local", options=ONE)
    assert not done.failed
    assert max(r.provenance["resumed_at"] for r in done.records) > 0
    assert len(all_numbers(store)) == 2
    with pytest.raises(StoreError, match=r"does not see.*memory://.*share"):
        run_jobs(jobs, Store(f"memory://{tmp_path.name}"), ray="local", options=ONE)
    with pytest.raises(ConfigError, match="99 CPU"):
        clusters.check_resources(cluster, {"CPU": 99, "GPU": 0}, alone=True)
    with pytest.warns(UserWarning, match="1 CPU and 64 GPU, which no node"):
        clusters.check_resources(cluster, {"CPU": 1, "GPU": 64}, alone=False)


@pytest.mark.ray
def test_the_page_works_as_written(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(compile(code, str(PAGE), "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    lines = [line for line in printed if "(raylet)" not in line]  # what Ray says of itself
    assert [line.split()[0] for line in sorted(lines[:-1])] == ["bn", "g-fret", "source", "tent"]
    assert lines[-1] == "4 runs, 0 failed, 0 were there"
    assert len(Store(tmp_path / "results").keys()) == 4
    (command,) = re.findall(r"^fretta (run .* --ray local .*)$", page, re.M)
    result = CliRunner().invoke(app, shlex.split(command))  # finds all four in the same store
    assert result.exit_code == 0, result.output


def test_without_the_package_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"extra 'ray'"):
        run_jobs(small_jobs("source"), Store(tmp_path), ray="local")


def test_tasks_see_the_mark_until_the_cluster_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C a task may begin while the cluster ends: its store is still there."""
    marks = list[list[Path]]()

    @contextmanager
    def connected(*arguments: Any) -> Iterator[tuple[None, bool]]:
        try:
            yield None, False
        finally:
            marks.append(list(tmp_path.rglob(".seen-*")))

    def run_tasks(*arguments: Any, **needs: Any) -> Iterator[Any]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(ray_cluster, "connected", connected)
    monkeypatch.setattr(ray_cluster, "run_tasks", run_tasks)
    with pytest.raises(KeyboardInterrupt):
        run_jobs(small_jobs("source"), Store(tmp_path), ray="local")
    assert [len(at_the_end) for at_the_end in marks] == [1]
    assert not list(tmp_path.rglob(".seen-*"))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("here", "'here' is no address"),
        ("127.0.0.1:1", "cannot join .*127.0.0.1:1.* refused.*ray start --head"),
        ("ray://127.0.0.1:1", "cannot join .*ray://127.0.0.1:1.* refused"),
        ("host:door", "cannot join .*host:door.*no number"),
    ],
)
def test_wrong_addresses_fail_at_once(address: str, message: str, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    if ray.is_initialized():
        ray.shutdown()  # a connection that is there would be used
    with pytest.raises(ConfigError, match=message):
        run_jobs(small_jobs("source"), Store(tmp_path), ray=address)
