"""The pages say what the committed records say, and the defaults are what the search chose."""

from __future__ import annotations

import importlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fretta.experiment.records import Run, digest
from fretta.experiment.store import Store
from fretta.experiment.suite import load_suite
from fretta.methods import REGISTRY
from fretta.models.cards import read_card, sha256
from fretta.models.load import find_weights

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "evidence"
SENTENCES = (
    "provenance",
    "verdicts-in-short",
    "streams-which",
    "streams-caption",
    "weights-resnet18",
    "auto-network",
    "auto-imagenet",
    "rare-classes",
)  # blocks of one line


@pytest.fixture(scope="module")
def evidence(build):
    return build.Evidence(FOLDER)


def test_pages_and_records_agree(build, evidence):
    assert build.stale(ROOT, evidence) == []


def test_every_block_is_on_some_page_and_none_is_empty(build):
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in build.FILES]
    shown = {m[2] for text in texts for m in build.BLOCK.finditer(text)}
    assert shown == set(build.BLOCKS)
    for text in texts:
        for match in build.BLOCK.finditer(text):
            assert (
                match[0].count("\n") > 2 or match[2] in SENTENCES or match[2].endswith("provenance")
            ), match[2]


NETWORK = "cifar10c-resnet18"


def moved(record, suite, label="", gain=0.0, **run):
    """A record as the ResNet-18 would leave it."""
    changed = {**record.run, "model": {**record.run["model"], "spec": "cifar:resnet18"}, **run}
    rows = [{**row, "accuracy": row["accuracy"] + gain} for row in record.rows]
    tags = {"suite": suite, "case": "resnet18", "label": label or record.tags["label"]}
    return replace(record, run=changed, key=Run(**changed).key, tags=tags, rows=rows)


@pytest.fixture
def network(build, evidence, tmp_path):
    """Fills a store of the ResNet-18 with one seed: what the ResNet-20 did, G-FRET better."""
    shared = [r for r in evidence.records if r.tags["suite"] == "cifar10c-shared"]
    shared = {r.tags["label"]: r for r in shared if r.run["seed"] == 0}
    parts = [r for r in evidence.records if r.tags["suite"] == "gfret-parts"]
    folder = tmp_path / "evidence"

    def fill(labels=(), gain=0.0, search=False):
        store = Store(folder)
        for label in labels:
            store.put(moved(shared[label], NETWORK, gain=gain if label == "g-fret" else 0.0))
        for entry in load_suite(NETWORK).methods if search else []:
            if entry.title.endswith(build.network.TUNED_ROW):
                own = {"hyperparameters": entry.hyperparameters}
                store.put(moved(shared[entry.name], NETWORK, entry.title, **own))
                own = {"hyperparameters": {"lr": 0.5}}
                store.put(moved(shared[entry.name], build.network.RATES, "another rate", **own))
        for record in [r for r in parts if r.run["seed"] == 0] if search else []:
            store.put(moved(record, "gfret-parts-resnet18"))
        for record in evidence.trial("cifar10c-shared", "g-fret", limit=256) if search else []:
            options = {**record.run["order_options"], "limit": 128}
            trial = moved(record, f"{NETWORK}/tune", order_options=options)
            Store(folder / "tuning").put(trial)
        return build.Evidence(folder)

    return fill


def test_the_network_of_the_paper_fills_its_blocks(build, evidence, network):
    tuned, released = build.tuning.TUNED, [f"{m} (released)" for m in build.network.VARIANTS]
    found = network(["source", "bn", *tuned, *released], 0.05, search=True)
    store = Store(found.folder)
    for kind in ("redundancy", "tsne"):
        store.put_analysis(f"{kind}-resnet18", evidence.analyses[f"{kind}-cifar10"])
    curve = {"nrs": [0.5, 0.5, 0.4, 0.4], "right": [3, 4, 4, 5], "loss": [None] * 4}
    content = {"kind": "mechanism", "images": [8] * 4, "curves": {"s-fret": curve}}
    store.put_analysis("mechanism-resnet18", content)
    found = build.Evidence(found.folder)
    for name, made in build.BLOCKS.items():
        if name.endswith("resnet18") and name != "weights-resnet18":
            assert build.tables.NOT_RUN not in made(found), name
    default, as_released, tuned = build.network.first_lines(found)
    assert "**yes**, 1 of 10: g-fret 79.7" in default
    assert default.endswith("*, 1 seed")
    assert "**cannot be told**, " in as_released  # without batches the test is a cautious one
    assert "1 seed" in tuned
    title = "CIFAR-10-C, ResNet-18 (1)"
    assert title in build.tables.results_table(found)
    assert title in build.tables.beaten(found)
    claims = importlib.import_module("evidence.claims")
    for make in (
        *(claims.methods_reduce_it, claims.graph_beats_simple, claims.best_or_second),
        claims.parts_help,
    ):
        assert title in "".join(make(found).numbers), make
    for make in (claims.redundancy_grows, claims.insensitive, claims.any_lam, claims.separates):
        assert "resnet18" in "".join(make(found).numbers).lower().replace("-", ""), make


def test_the_network_of_the_paper_in_part(build, network):
    """Nothing is said of what was not run."""
    claims = importlib.import_module("evidence.claims")
    for labels in ((), ("source", "bn")):
        found = network(labels)
        assert all("cannot be told, " in line for line in build.network.first_lines(found))
        assert claims.graph_beats_simple(found).verdict == claims.OPEN
        assert build.network.tuned_table(found) == build.tables.NOT_RUN
    assert "| `bn` | **74." in build.tables.results_table(found)
    found = network(build.tuning.TUNED, gain=-0.05)
    assert "**no**, 8 of 10: g-fret 69." in build.network.first_lines(found)[0]


def test_what_is_called_tuned_is_the_best_rate_that_was_run(build, evidence):
    tuned = build.network.chosen()
    found = [r for r in evidence.records if r.tags["suite"] == build.network.RATES]
    assert {r.run["method"] for r in found} == set(build.tuning.TUNED)
    for method in build.tuning.TUNED:
        runs = [r for r in found if r.run["method"] == method]
        best = max(runs, key=lambda r: r.overall["mean_over_domains"])
        assert best.run["hyperparameters"] == tuned.get(method, {}), method


def test_the_weights_in_the_repository(monkeypatch):
    """They are found from the root, are those of the card, and are small."""
    monkeypatch.chdir(ROOT)
    (case,) = load_suite(NETWORK).cases
    path = Path("weights", case.model["source"])
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    assert find_weights(case.model["source"]) == path
    card = read_card(path)
    assert card.sha256 == sha256(path)
    assert path.stat().st_size < 25_000_000
    page = (ROOT / "docs" / "source-models.md").read_text(encoding="utf-8")
    assert f"{100 * card.accuracy['test']:.2f} % on the clean test images" in page


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
    assert {"docs/evidence.md", "docs/performance.md"} <= set(
        build.stale(ROOT, build.Evidence(copy))
    )


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
    """A record names the defaults of its method, all of them: those that the library has now."""
    for record in evidence.records:
        values = REGISTRY[record.run["method"]].defaults(record.settings.get("variant"))
        assert record.run["defaults"] == digest(values)[:12], record.tags


def test_the_default_is_nowhere_below_the_source(evidence):
    """On every network and stream of the suites, by half a point over images, by one over classes.
    A seed changes the order alone: the source model is the same for all of them."""
    found: dict[tuple[str, str], dict[str, list[dict[str, float]]]] = {}
    for record in evidence.records:
        place = record.tags["suite"], record.tags["case"]
        found.setdefault(place, {}).setdefault(record.tags["label"], []).append(record.overall)
    both = {place: scores for place, scores in found.items() if {"auto", "source"} <= {*scores}}
    assert len(both) >= 8
    for place, scores in both.items():
        source = scores["source"][0]
        for auto in scores["auto"]:
            assert auto["accuracy"] >= source["accuracy"] - 0.005, place
            assert auto["accuracy_macro"] >= source["accuracy_macro"] - 0.01, place


def test_the_evidence_is_a_few_small_files():
    sizes = [p.stat().st_size for p in FOLDER.rglob("*") if p.is_file() and p.suffix != ".pyc"]
    assert len(sizes) < 80
    assert sum(sizes) < 20_000_000
