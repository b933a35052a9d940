"""The suites in the package: they parse, expand to the right runs, and run."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from suite_world import run_count
from typer.testing import CliRunner

from fretta.cli import app
from fretta.experiment.execute import Options, run_jobs
from fretta.experiment.run import adapter_of, case_of
from fretta.experiment.store import Store
from fretta.experiment.suite import list_suites, load_suite
from fretta.experiment.train import TrainConfig
from fretta.experiment.tune import GRIDS
from fretta.methods import REGISTRY

PAPER = ["source", "bn", "tent", "eata", "sar", "tsd", "tipi", "tea", "s-fret", "g-fret"]
RELEASED = {f"{name} (released)" for name in ("eata", "sar", "tsd", "tipi", "s-fret", "g-fret")}

TABLES = ["cifar10c", "cifar100c", "cifar100c-lt", "domainnet", "imagenetc", "officehome", "pacs"]
TABLES += ["vlcs"]
ONE = Options(threads=1)  # tests run in parallel processes
CIFAR = ["cifar10c-shared", "cifar10c-shared-full", "cifar10c-shared-lt", "cifar10c-shared-tea"]
CIFAR += ["cifar10c-shared-correlated", "cifar10c-shared-guarded", "gfret-parts", "gfret-switches"]
SHARED = [*CIFAR, "pacs-shared", "imagenet-shared"]


def test_suites_parse() -> None:
    """docs/reproduce.md lists how many runs each has; test_guides.py compares."""
    for name in list_suites():
        suite = load_suite(name)
        assert suite.title
        assert suite.about


@pytest.mark.parametrize("name", TABLES)
def test_tables_follow_the_protocol_of_the_paper(name: str) -> None:
    suite = load_suite(name)
    titles = [m.title for m in suite.methods]
    assert titles[:10] == PAPER
    assert set(titles[10:]) == RELEASED
    released = [m for m in suite.methods if m.title in RELEASED]
    assert all(m.hyperparameters["variant"] == "released" for m in released)
    for case in suite.cases:
        assert case.protocol["seeds"] == [0, 1, 2, 3, 4]
        assert case.protocol["batch_size"] == 128
        assert case.protocol["order"] == ("independent" if name == "imagenetc" else "continual")
        assert case.source is not None  # for eata
        if "domains" in case.data:  # never adapted on what it was trained on
            assert not set(case.data["domains"]) & set(case.source["domains"])


def test_ablation_and_sensitivity_have_the_rows_of_the_paper() -> None:
    parts = ("l_r_a", "l_r_r", "l_p_a", "l_p_r")
    on = {
        m.title: tuple(p for p in parts if m.hyperparameters.get(p, True))
        for m in load_suite("ablation").methods
        if m.name == "g-fret"
    }
    assert on["L_R(A)"] == ("l_r_a",)
    assert on["without_L_R(R)"] == ("l_r_a", "l_p_a", "l_p_r")
    assert on["L_R(R)+L_P(R)"] == ("l_r_r", "l_p_r")
    assert on["all"] == parts
    assert len(set(on.values())) == len(on) == 11
    entries = [m.hyperparameters for m in load_suite("sensitivity").methods if m.name == "g-fret"]
    for name, values in GRIDS.items():
        assert {e[name] for e in entries if name in e} == set(values)


@pytest.mark.parametrize("name", sorted(set(list_suites()) - set(SHARED)))
def test_suites_expand(name: str, tmp_path: Path, small_world: Any) -> None:
    """Data and weights of the right names are found; every run is another one."""
    suite = load_suite(name)
    small_world(tmp_path, suite.cases)
    jobs = suite.jobs(tmp_path)
    assert len({job.run.key for job in jobs}) == len(jobs) == run_count(suite)
    for job in jobs:
        assert job.tags["suite"] == name
        assert (job.run.source is not None) == (job.run.method in ("eata", "foa-shift"))


@pytest.mark.parametrize("name", ["vlcs", "cifar10c"])
def test_suites_run(name: str, tmp_path: Path, small_world: Any) -> None:
    suite = load_suite(name).restricted(methods=["source", "eata (released)", "g-fret"], seeds=[0])
    suite = suite.restricted(cases=[suite.cases[0].name])
    small_world(tmp_path, suite.cases)
    jobs = suite.jobs(tmp_path)
    with pytest.warns(UserWarning, match="eata"):  # its filters cannot work on few classes
        done = run_jobs(jobs, Store(tmp_path / "store"), options=ONE)
    assert [record.error for record in done.failed] == []
    assert [r.tags["label"] for r in done.records] == [m.title for m in suite.methods]


def configs_of(name: str, monkeypatch: pytest.MonkeyPatch) -> list[TrainConfig]:
    """What the commands in the comments of a suite train."""
    made: list[TrainConfig] = []

    class Made:
        accuracy: dict[str, float] = {}  # noqa: RUF012

    def train_source(config: TrainConfig, **options: Any) -> Made:
        made.append(config)
        return Made()

    monkeypatch.setattr("fretta.experiment.train.train_source", train_source)
    content = (resources.files("fretta") / "suites" / f"{name}.toml").read_text(encoding="utf-8")
    text = "\n".join(line[2:] for line in content.splitlines() if line.startswith("# "))
    text = text.replace("\\\n", " ")
    for command in re.findall(r"^ +fretta (train .*)$", text, re.M):
        result = CliRunner().invoke(app, shlex.split(command), catch_exceptions=False)
        assert result.exit_code == 0, result.output
    return made


TRAINED = [*TABLES, "ablation", "sensitivity", "cifar10c-resnet18", "digits-layernorm"]


@pytest.mark.parametrize("name", TRAINED)
def test_commands_in_comments_make_the_weights(name: str, monkeypatch: Any) -> None:
    """They parse, and write what the suite looks for, or what another of them begins with."""
    made, suite = configs_of(name, monkeypatch), load_suite(name)
    made = [config for config in made if str(config.out) not in {str(c.init) for c in made}]
    wanted = {c.model["source"] for c in suite.cases if "source" in c.model}
    assert {str(config.out) for config in made} <= wanted
    for config in made:
        case = next(c for c in suite.cases if c.model["source"] == str(config.out))
        assert config.resolved().size == case.data.get("size", 32)
        assert config.target is None or [config.target] == case.data["domains"]
    assert made or name == "imagenetc"  # whose weights come from torchvision


@pytest.mark.data
@pytest.mark.parametrize("name", [*CIFAR, "imagenet-shared"])
def test_shared_suites_expand(name: str, shared: Path) -> None:
    suite = load_suite(name)
    jobs = suite.jobs(shared / "data")
    assert len({job.run.key for job in jobs}) == len(jobs) == run_count(suite)


@pytest.mark.data
@pytest.mark.slow
def test_shared_suites_run(shared: Path, tmp_path: Path) -> None:
    """The first two corruptions of CIFAR-10, 128 images of each; 64 paintings of PACS."""
    cifar, pacs = load_suite("cifar10c-shared"), load_suite("pacs-shared")
    for suite in (cifar, pacs):
        assert {m.name for m in suite.methods} == set(REGISTRY) - {"tea", "memo"}
    cifar = cifar.restricted(methods=["source", "bn", "tent", "g-fret"], seeds=[0], limit=128)
    cifar.cases[0].protocol["domains"] = ["gaussian_noise", "shot_noise"]
    done = run_jobs(cifar.jobs(shared / "data"), Store(tmp_path), options=ONE)
    assert not done.failed
    assert all([row["images"] for row in r.rows] == [128, 128] for r in done.records)
    accuracy = {r.run["method"]: r.overall["mean_over_domains"] for r in done.records}
    assert accuracy["bn"] > accuracy["source"] + 0.1
    assert accuracy["g-fret"] > accuracy["source"]
    pacs = pacs.restricted(methods=["source"], seeds=[0], limit=64, cases=["lite0/art_painting"])
    (record,) = run_jobs(pacs.jobs(shared / "data"), Store(tmp_path), options=ONE).records
    assert [row["images"] for row in record.rows] == [64]
    assert record.overall["accuracy"] > 0.6  # 75 % on all 2,048


def test_a_changed_default_makes_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a store would answer with a number that the library no longer gives."""

    def keys() -> dict[str, str]:
        return {job.tags["label"]: job.run.key for job in load_suite("smoke").jobs()}

    method = REGISTRY["g-fret"]
    before, implied = keys(), method.implied
    monkeypatch.setattr(method, "implied", lambda *a: {**implied(*a), "lam": 0.5})
    after = keys()
    assert {label for label in before if before[label] != after[label]} == {"g-fret"}


@pytest.mark.slow
def test_precision_of_a_case() -> None:
    (entry,) = load_suite("smoke").cases
    suite = replace(load_suite("smoke"), cases=(replace(entry, adapter={"precision": "bfloat16"}),))
    plain, job = load_suite("smoke").jobs()[0], suite.jobs()[0]
    assert plain.run.key != job.run.key
    assert adapter_of(job.run, case_of(job)).learner.compute.precision == "bfloat16"
