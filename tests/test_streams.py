"""benchmarks/streams.py: small runs on digits, and tables of numbers made by hand."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command, with a small stream of digits and one whose class does not exist."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    found = importlib.import_module("streams")
    plan = found.PLANS["digits-8"]
    small = {"domains": ["fog", "contrast"], "limit": 24}
    of_seed = ({"dominant": 3}, {"dominant": 8})
    changes = {"name": "small", "order": "continual+dominant", "options": small, "by_seed": of_seed}
    plans = {"small": type(plan)(**{**vars(plan), **changes})}
    bad = {"name": "bad", "by_seed": ({"dominant": 99},)}
    plans["bad"] = type(plan)(**{**vars(plans["small"]), **bad})
    for name, value in plans.items():
        monkeypatch.setitem(found.PLANS, name, value)
    return found


@pytest.fixture
def tables(build: Any) -> Any:
    return build.streams


@pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
def test_runs_are_recorded_once_and_failures_too(script: Any, tmp_path: Path) -> None:
    records = tmp_path / "r.jsonl"
    settings = script.Settings(records, tmp_path, torch.get_num_threads(), 0.0)
    runs = script.wanted_runs(["small", "bad"], ["source", "bn"], [0])
    script.work(runs, settings)
    lines = script.read_records(records)
    assert [(r["stream"], r["method"], bool(r["error"])) for r in lines] == [
        ("small", "source", False),
        ("small", "bn", False),
        ("bad", "source", True),
        ("bad", "bn", True),
    ]
    assert "dominant=99" in lines[-1]["error"]
    assert lines[0]["images"] == 2 * (19 + 9)  # 24 · 0.8, and one of each other class
    assert lines[0]["origin"] == "run"
    script.work(runs[:2], settings)
    assert len(script.read_records(records)) == 4  # skipped
    again = script.Settings(records, tmp_path, torch.get_num_threads(), lines[-1]["finished"] + 1)
    script.work(runs[1:2], again)
    more = script.read_records(records)
    assert len(more) == 5
    assert more[-1]["accuracy"] == lines[1]["accuracy"]  # the images came from the cache


@pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
def test_images_of_the_cache_are_those_of_the_stream(script: Any, tmp_path: Path) -> None:
    plans = importlib.import_module("stream_list")
    case = plans.open_plan("digits-64")
    stream = case.stream("mixed+sorted", seed=1, batch_size=16, limit=4, domains=["fog", "frost"])
    for _ in range(2):  # made, then read
        kept = plans.kept_stream(stream, tmp_path)
        for one, other in zip(stream, kept, strict=True):
            assert torch.equal(one.x, other.x)
            assert torch.equal(one.y, other.y)
    assert len(list(tmp_path.glob("*.npy"))) == 2
    some = next(tmp_path.glob("*.npy"))
    np.save(some, np.zeros_like(np.load(some)))
    assert any((batch.x == 0).all(dim=(1, 2, 3)).any() for batch in kept)


@pytest.mark.data
def test_the_streams_are_what_they_are_called(script: Any) -> None:
    plans = importlib.import_module("stream_list")

    def stream(name: str, seed: int = 0) -> Any:
        plan, case = plans.PLANS[name], plans.open_plan(name)
        options = plan.order_options(seed)
        return case.stream(plan.order, seed=seed, batch_size=plan.batch_size, **options)

    for seed, number in enumerate((3, 8, 1)):  # cat, ship, automobile
        assert np.mean(stream("fog-80", seed).labels == number) == pytest.approx(0.8, abs=0.01)
    eight, many = stream("cifar-8"), stream("cifar-128")
    assert eight.samples == many.samples == 15 * 256
    assert sorted(eight.schedule.index) == sorted(many.schedule.index)  # the same images
    by_class = stream("sorted-4")
    assert np.mean(np.diff(by_class.labels) == 0) > 0.9
    assert stream("cifar-long").samples == 150_000
    for name in ("cifar-lt", "pacs-art_painting", "imagenet-clean", "imagenet-c", "clean"):
        assert stream(name).samples >= 192


def record(stream: str, method: str, accuracy: float | None, seed: int = 0) -> dict[str, Any]:
    return {
        "stream": stream,
        "title": stream.upper(),
        "method": method,
        "seed": seed,
        "accuracy": accuracy,
        "error": "" if accuracy is not None else "Traceback\nValueError: no",
    }


HAND = [
    *(record("cifar-128", m, a) for m, a in (("source", 0.6), ("bn", 0.7), ("tent", 0.5))),
    *(record("clean", m, a) for m, a in (("source", 0.9), ("bn", 0.8), ("tent", 0.804))),
    record("cifar-128", "auto", None),
    record("cifar-128", "auto", 0.8),
    record("clean", "auto", 0.91),
    record("clean", "auto", 0.89, seed=1),  # the source has no seed 1: not compared
]


def test_the_page_knows_every_stream(script: Any, tables: Any) -> None:
    assert sorted(tables.STREAMS) == sorted(set(script.PLANS) - {"small", "bad"})


def test_kinds_of_streams_and_which_method_to_use(tables: Any) -> None:
    levels = {"source": 0.5, "bn": 0.4, "tent": 0.6, "stein": 0.7, "auto": 0.8}
    every = [stream for streams in tables.KINDS.values() for stream in streams]
    made = [record(stream, m, a) for stream in every for m, a in levels.items()]
    made += [record(every[0], "auto", 0.2, seed=1)]  # not a seed of the others: not compared
    made += [record(stream, "sar", 0.9) for stream in every[1:]]  # one stream is missing
    costs = {"source": 1.0, "stein": 2.0, "auto": 3.04}
    text = tables.kinds_table(tables.Scores(made), costs)
    rows = {row.split("`")[1]: row for row in text.splitlines()[2:]}
    assert list(rows) == ["auto", "stein", "tent", "source", "bn", "sar"]
    assert rows["auto"].count("80.0") == len(tables.KINDS) + 1
    assert rows["bn"].count("40.0 ▼") == len(tables.KINDS) + 1
    assert "▼" not in rows["tent"]
    assert rows["sar"].count("–") == 3  # of its kind, the mean, and the cost
    assert rows["auto"].endswith("| 3.0 × |")
    words = tables.which_text(tables.Scores(made), costs)
    assert len(words.splitlines()) == 5
    assert "takes 2.0 times the source model's, `auto` 3.0." in words
    assert (
        f"Of {len(tables.KINDS)} kinds of streams `auto` leads on 1 by over half a point" in words
    )
    assert "is level with the best on 0" in words
    assert "at least as good as the source model on every stream" in words
    assert "no shift (`sar` 90.0, `auto` 80.0)" in words
    assert "by up to 10 points (`bn`, " in words
    over = f"Mean over {len(every)} streams: `auto` 80.0, the source model 50.0, `tent`, the best"
    assert f"{over} published method run on all, 60.0." in words  # `sar` was not


def test_the_tables_say_what_the_records_say(tables: Any) -> None:
    text = tables.table_text(HAND)
    assert "| auto | **85.5** | +1.0 | 0 of 2 |" in text
    assert "| bn | 75.0 | -10.0 | 1 of 2 |" in text
    assert "| method | CLEAN (1) |" in text  # one seed
    assert "| tent | 50.0 ▼ |" in text
    assert "| source | 60.0 |" in text
    assert "| auto | **91.0** |" in text
    assert "Failed" not in text  # it was run again
    assert "ValueError: no" in tables.table_text([*HAND, record("clean", "tsd", None)])


def test_fewer_seeds_are_marked(tables: Any) -> None:
    """Another seed is another stream: means are over the seeds that most methods have."""
    made = [record("clean", m, 0.5, seed) for m in ("source", "bn", "tent") for seed in (0, 1)]
    made += [record("clean", "tea", 0.9), record("clean", "tent", 0.2, seed=2)]
    text = tables.table_text(made)
    assert "| tea | **90.0** ° |" in text
    assert "| tent | 50.0 |" in text
    assert tables.Scores(made).seeds("clean") == {0, 1}


def test_a_row_with_fewer_seeds_is_compared_on_its_own(tables: Any) -> None:
    """Another seed can be another frequent class: both methods on the seeds that both have."""
    every = [stream for streams in tables.KINDS.values() for stream in streams]
    both, levels = ("source", "bn"), ((0, 0.4), (1, 0.8))  # seed, accuracy
    made = [record(s, m, a, seed) for s in every for seed, a in levels for m in both]
    made += [record(s, m, a) for s in every for m, a in (("memo", 0.5), ("tea", 0.3))]
    made += [record(s, "auto", a, seed) for s in every for seed, a in ((0, 0.6), (1, 0.8))]
    scores = tables.Scores(made)
    rows = {row.split("`")[1]: row for row in tables.kinds_table(scores, {}).splitlines()[2:]}
    assert "▼" not in rows["memo"]  # 50 against the source model's 40 with seed 0, 60 with both
    assert "50.0 °" in rows["memo"]
    assert "30.0 ° ▼" in rows["tea"]
    assert tables.leads(scores).endswith(
        f"leads on {len(tables.KINDS)} by over half a point and is level with the best on 0."
    )


def test_over_images_and_over_classes(tables: Any) -> None:
    """A method without all of the numbers has no row."""
    made = [
        {**record(stream, method, 0.8), "accuracy_macro": 0.2}
        for stream in tables.KINDS["uneven classes"]
        for method in ("source", "bn")
    ]
    rows = tables.classes_table(tables.Scores([*made, record("fog-80", "tent", 0.9)])).splitlines()
    assert rows[2:] == [f"| {m} |" + " 80.0 | 20.0 |" * 3 for m in ("source", "bn")]
    rows = tables.classes_table(tables.Scores([*made, record("fog-80", "bn", 0.9)])).splitlines()
    assert len(rows) == 3
    more = [
        {**record(s, "bn", 0.8, 1), "accuracy_macro": 0.2} for s in tables.KINDS["uneven classes"]
    ]
    more += [{**r, "method": m} for r in more for m in ("tent", "source")]
    more += [{**r, "seed": 0} for r in more if r["method"] == "tent"]
    rows = tables.classes_table(tables.Scores([*made, *more])).splitlines()
    assert [row.split()[1] for row in rows[2:]] == ["source", "bn", "tent"]
    few = [r for r in more if (r["method"], r["seed"]) != ("tent", 1)]
    rows = tables.classes_table(tables.Scores([*made, *few])).splitlines()
    assert [row.split()[1] for row in rows[2:]] == ["source", "bn"]  # tent lacks a seed


def test_the_thresholds_by_hand(tables: Any) -> None:
    found = {title: passed for title, passed, _ in tables.checks(HAND)}
    assert found["auto ≥ source − 0.5: clean"] is True
    assert found["auto within 0.5 of the best published method: cifar-128"] is True
    assert found["auto, mean over the streams ≥ best published method + 5"] is True
    assert found["stein ≥ source − 0.5: clean"] is None
    assert found["stein in batches of 8, at most 0.5 below bn in batches of 128"] is None
    worse = [*HAND, record("clean", "auto", 0.89), record("cifar-8", "stein", 0.694)]
    worse += [record("sorted-4", "stein", 0.66)]
    found = {title: passed for title, passed, _ in tables.checks(worse)}
    assert found["auto ≥ source − 0.5: clean"] is False
    assert found["stein in batches of 8, at most 0.5 below bn in batches of 128"] is False
    assert (
        found["stein in sorted batches of 4, at most 4.5 below bn in shuffled batches of 128"]
        is True
    )
    assert "FAIL  auto ≥ source − 0.5: clean  (89.00, source 90.00)" in tables.check_text(worse)
