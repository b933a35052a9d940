"""Records to rows, exports, and the commands that run and list."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands import fretta, fretta_alone
from fretta.errors import ConfigError, FrettaWarning, StoreError
from fretta.experiment.records import Job, Place, Record, Run
from fretta.experiment.results import export, load_results, rows_of, select
from fretta.experiment.store import Store


def record(label: str, seed: int, accuracy: float | None, **tags: str) -> Record:
    run = {"method": label.split()[0], "seed": seed}
    done = accuracy is not None
    return Record(
        run=run,
        key=f"{label}-{seed}".replace(" ", "-"),
        status="done" if done else "failed",
        tags={"suite": "s", "case": "c", "label": label, **tags},
        rows=[{"domain": "fog", "accuracy": accuracy, "images": 10}] if done else [],
        overall=(
            {"mean_over_domains": accuracy, "accuracy": accuracy, "seconds_per_batch": 0.5}
            if done
            else {}
        ),
        provenance={"dirty": False},
        error="" if done else "Traceback: no",
    )


RECORDS = [
    record("tent", 0, 0.5),
    record("tent", 1, 0.7),
    record("g-fret", 0, 0.9),
    record("g-fret", 1, None),
    record("g-fret lam=1", 0, 0.8, tuning="oracle"),
]


def test_by_method() -> None:
    rows = rows_of(RECORDS, "methods")
    assert [r["method"] for r in rows] == ["g-fret", "g-fret lam=1", "tent"]
    tent = rows[-1]
    assert (tent["seeds"], tent["failed"], tent["accuracy"]) == (2, 0, pytest.approx(0.6))
    assert tent["deviation"] == pytest.approx(0.02**0.5)
    assert rows[0]["deviation"] is None
    assert (rows[0]["seeds"], rows[0]["failed"]) == (1, 1)
    assert rows[1]["tuning"] == "oracle"
    only_failed = rows_of([RECORDS[3]], "methods")[0]
    assert only_failed["accuracy"] is None


def test_only_runs_that_differ_in_the_seed_are_averaged() -> None:
    def run(seed: int, **more: Any) -> Record:
        made = record("tent", seed, 0.5)
        made.run = {**made.run, "hyperparameters": {"lr": 1e-3}, "order_options": {}, **more}
        return made

    others: list[dict[str, Any]] = [
        {"hyperparameters": {"lr": 0.5}},
        {"order_options": {"limit": 64}},
    ]
    others.append({"weights_hash": "other"})
    rows = rows_of([run(0), run(1), *(run(0, **more) for more in others)], "methods")
    assert sorted(r["seeds"] for r in rows) == [1, 1, 1, 2]
    assert {"lr=0.5", "lr=0.001 limit=64"} < {r["setting"] for r in rows}


def test_select() -> None:
    assert len(select(RECORDS, method="g-fret")) == 3
    assert len(select(RECORDS, method="g-fret lam=1")) == 1
    assert len(select(RECORDS, status="failed")) == 1
    assert not select(RECORDS, suite="other")
    with pytest.raises(ConfigError, match="level 'x' is unknown"):
        rows_of(RECORDS, "x")


def test_exports(tmp_path: Path) -> None:
    from pyarrow import parquet

    rows = rows_of(RECORDS, "runs")
    text = export(rows, "csv", None)
    assert text is not None
    read = list(csv.DictReader(io.StringIO(text)))
    assert [r["accuracy"] for r in read] == ["0.5", "0.7", "0.9", "", "0.8"]  # a dash is empty
    assert json.loads(export(rows, "json", None) or "") == rows
    export(rows, "parquet", tmp_path / "deep" / "r.parquet")
    assert parquet.read_table(tmp_path / "deep" / "r.parquet").to_pylist() == rows
    with pytest.raises(ConfigError, match="--out"):
        export(rows, "parquet", None)


def test_a_store_as_a_data_frame(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for made in RECORDS:
        store.put(made)
    table = load_results(tmp_path)
    assert len(table) == 4  # the failed run has no domain
    assert table.groupby("method")["accuracy"].mean()["tent"] == pytest.approx(0.6)
    assert load_results(tmp_path, "runs")["status"].value_counts()["failed"] == 1
    (tmp_path / "records" / "half.json").write_text("{")
    with pytest.warns(FrettaWarning, match=r"half\.json is damaged"):
        assert len(load_results(tmp_path)) == 4
    with pytest.raises(StoreError, match="there is no store"):
        load_results(tmp_path / "none")


# ---- runs and records ----------------------------------------------------------------------------

RUN = Run({"name": "digits"}, "d", {"spec": "m"}, "w", "tent", {"lr": 1e-3}, "continual", {}, 64, 0)


def test_the_key_follows_everything_that_decides_the_number() -> None:
    changes: list[dict[str, Any]] = [
        *({}, {"seed": 1}, {"batch_size": 32}, {"weights_hash": "other"}, {"data_hash": "other"}),
        *({"hyperparameters": {"lr": 2e-3}}, {"adapter": {"steps": 2}}, {"order": "mixed"}),
    ]
    assert len({replace(RUN, **change).key for change in changes}) == len(changes)
    job = Job(RUN, Place("here", "there"), {"suite": "s"})
    assert Job.from_json(json.loads(json.dumps(job.to_json()))) == job
    assert job.run.key == replace(job, place=Place()).run.key  # where things are does not matter


def test_damaged_records_are_detected(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(RECORDS[0], {"x": 1})
    key = RECORDS[0].key
    assert store.get(key) == RECORDS[0]
    assert store.details(key) == {"x": 1}
    path = tmp_path / "records" / f"{key}.json"
    sound = path.read_text()
    for damaged in (sound[: len(sound) // 2], "", sound.replace("0.5", "0.6"), "[]", "{}"):
        path.write_text(damaged)
        assert not store.done(key)
        with pytest.raises(StoreError, match=r"damaged|not a record"):
            store.get(key)
        messages: list[str] = []
        assert list(store.records(messages)) == []
        assert len(messages) == 1
    path.write_text(sound)
    assert store.done(key)
    (tmp_path / "records" / "other.json").write_text(sound)
    with pytest.raises(StoreError, match="another run"):
        store.get("other")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        Store(tmp_path / "file").check()


# ---- as a user types it --------------------------------------------------------------------------


def test_run_results_and_evaluate(tmp_path: Path) -> None:
    first = fretta("run", "smoke", "--method", "source", "--method", "bn", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "2 runs in" in first.stdout
    again = fretta("run", "smoke", "--method", "bn", cwd=tmp_path)
    assert "0 runs in" in again.stdout
    table = fretta("results", "--level", "domains", "--method", "bn", cwd=tmp_path).stdout
    assert "gaussian_noise" in table
    rows = json.loads(fretta("results", "--format", "json", "--level", "runs", cwd=tmp_path).stdout)
    assert {r["method"] for r in rows} == {"source", "bn"}
    few = "--limit 32 --domain fog --batch-size 16 --store other"
    single = fretta(*f"{DIGITS} tent --set lr=1e-2 {few}".split(), cwd=tmp_path)
    assert single.returncode == 0, single.stderr
    stored = next(iter(Store(tmp_path / "other").records()))
    assert (stored.settings["lr"], stored.overall["batches"]) == (1e-2, 2)
    assert stored.provenance["torch"]


DIGITS = "evaluate --model digits --data digits --method"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run nosuch", "no suite 'nosuch'"),
        ("run smoke --method tnet", "no method 'tnet'"),
        ("run cifar10c --method source", "FRETTA_DATA"),
        ("run smoke --jobs 0", "--jobs"),
        ("run smoke --store file", "cannot write"),
        ("run smoke --seed -1", "--seed"),
        ("run smoke --device nosuch", "--device nosuch cannot be used"),
        ("results empty", "'empty' has no records"),
        ("results --format xml", "--format 'xml'"),
        ("results --status zz", "--status 'zz'"),
        (f"{DIGITS} bn --mean 1,2,x", "--mean '1,2,x' is not a list of numbers"),
        (f"{DIGITS} tent --set lr", "NAME=VALUE"),
        ("evaluate --model timm:resnet18 --data digits --method bn", "was never trained"),
    ],
)
def test_what_cannot_work_fails_at_once(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "file").write_text("")
    out = fretta(*line.split(), cwd=tmp_path)
    assert out.returncode == 2
    assert message in " ".join(out.stderr.split())
    assert "Traceback" not in out.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_demo_shows_every_method(tmp_path: Path) -> None:
    out = fretta_alone("demo", cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    assert "11 runs in" in out.stdout
    accuracy = {
        r.tags["label"]: r.overall["mean_over_domains"]
        for r in Store(tmp_path / "demo-output").records()
    }
    assert len(accuracy) == 11
    assert accuracy["bn"] > accuracy["source"] + 0.2  # the shift hurts, and adapting helps
