"""The pages say what the committed records say, and the defaults are what the search chose."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fretta.experiment.store import Store
from fretta.methods import REGISTRY

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "evidence"
SENTENCES = (
    "provenance",
    "verdicts-in-short",
    "streams-which",
    "streams-caption",
)  # blocks of one line


@pytest.fixture(scope="module")
def build():
    sys.path.insert(0, str(ROOT))
    try:
        yield importlib.import_module("evidence.build")
    finally:
        sys.path.remove(str(ROOT))


@pytest.fixture(scope="module")
def evidence(build):
    return build.Evidence(FOLDER)


def test_pages_and_records_agree(build):
    assert build.stale(ROOT, FOLDER) == []


def test_every_block_is_on_some_page_and_none_is_empty(build):
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in build.FILES]
    shown = {m[2] for text in texts for m in build.BLOCK.finditer(text)}
    assert shown == set(build.BLOCKS)
    for text in texts:
        for match in build.BLOCK.finditer(text):
            assert (
                match[0].count("\n") > 2 or match[2] in SENTENCES or match[2].endswith("provenance")
            ), match[2]


@pytest.mark.slow
def test_a_changed_number_is_noticed(build, tmp_path):
    """In a record, sealed properly, or in what a benchmark wrote: the pages differ."""
    copy = tmp_path / "evidence"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("*.py"))
    path = copy / "benchmarks" / "head.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["textbook_over_gfret"] += 1
    path.write_text(json.dumps(content), encoding="utf-8")
    store, wanted = Store(copy), ("cifar10c-shared", "g-fret")
    found = (r for r in store.records() if (r.tags["suite"], r.tags["label"]) == wanted)
    record = next(found)
    first = {**record.rows[0], "accuracy": record.rows[0]["accuracy"] + 0.01}
    store.put(replace(record, rows=[first, *record.rows[1:]]))
    assert {"docs/evidence.md", "docs/performance.md"} <= set(build.stale(ROOT, copy))


def test_everything_is_complete_and_from_committed_code(evidence):
    records = [*evidence.records, *evidence.trials]
    assert len(records) > 300
    assert {r.status for r in records} == {"done"}
    files = sorted((FOLDER / "benchmarks").glob("*.json"))
    assert len(files) > 10
    made_by = [r.provenance for r in records]
    made_by += [json.loads(path.read_text(encoding="utf-8"))["provenance"] for path in files]
    lines = evidence.lines("streams")
    assert {line["error"] for line in lines} == {""}
    made_by += [{**line, "dirty": line["changed"]} for line in lines]
    for facts in made_by:
        assert facts["dirty"] is False, facts
        assert len(facts["commit"]) == 40


def test_verdicts_are_seldom_wrong_and_intervals_hold(evidence):
    """On streams that no constant was chosen on."""
    content = evidence.benchmark("verdicts")
    rows = [dict(zip(content["columns"], row, strict=True)) for row in content["rows"]]
    rows = [row for row in rows if row["part"] == "report"]
    assert len({row["stream"] for row in rows}) >= 200
    groups = {}
    for row in rows:
        groups.setdefault((row["data"], row["shifted"], row["uneven"]), []).append(row)
    assert {data for data, *_ in groups} == {"cifar10", "digits", "pacs"}
    signs = {"helps": 1, "hurts": -1, "collapsed": -1}
    wrong = [r for r in rows if r["verdict"] in signs and r["true"] * signs[r["verdict"]] <= 0]
    assert len(wrong) < 0.02 * len(rows)
    for name, group in groups.items():
        held = [r["low"] - 1e-4 <= r["true"] <= r["high"] + 1e-4 for r in group]
        assert sum(held) >= 0.85 * len(group), name
    far = {
        row["stream"]
        for row in rows
        if abs(row["true"] - (row["low"] + row["high"]) / 2) > row["high"] - row["low"] + 1e-4
    }
    assert len(far) <= 1  # the page names it
    for data in ("cifar10", "digits"):  # and it does speak
        clear = [row for row in groups[data, True, False] if row["true"] > 0.1]
        assert sum(row["verdict"] == "helps" for row in clear) > len(clear) / 2


def test_the_defaults_are_what_the_search_chose(build, evidence):
    for method in build.tuning.TUNED:
        default = REGISTRY[method]().resolved(10, quiet=True).lr
        assert default == build.tuning.chosen_rate(evidence, method), method


def test_results_were_made_with_these_defaults(evidence):
    """A record of a default variant has the learning rate that the library has now."""
    for record in evidence.records:
        if record.tags["label"] == record.run["method"] and "lr" in record.settings:
            method = REGISTRY[record.run["method"]]().resolved(10, quiet=True)
            assert record.settings["lr"] == method.lr, (record.tags, record.settings["lr"])


def test_the_evidence_is_a_few_small_files():
    sizes = [p.stat().st_size for p in FOLDER.rglob("*") if p.is_file() and p.suffix != ".pyc"]
    assert len(sizes) < 64
    assert sum(sizes) < 12_000_000
