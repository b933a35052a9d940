"""Which setting is chosen, with made-up numbers and with real runs."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fretta.errors import ConfigError, MissingExtraError, StoreError, SuiteError
from fretta.experiment.execute import Options, run_jobs
from fretta.experiment.store import Store
from fretta.experiment.suite import MethodEntry, Suite, parse_suite
from fretta.experiment.tune import Result, Rule, Trial, fragment, tune, write_fragment

GRID = {"lr": [1e-4, 1e-3, 1e-2, 1e-1]}
ONE = Options(threads=1)
Install = Callable[..., Any]


def numbers(settings: dict[str, Any], domain: str) -> dict[str, Any]:
    """A different lr is best in each place; 0.1 collapses and is the most confident of all."""
    best = {"gaussian_noise": 1e-4, "fog": 1e-2}.get(domain, 1e-3)
    lr = settings["lr"]
    height = {"gaussian_noise": 0.2, "fog": 0.5}.get(domain, 0.3)
    if lr == 1e-1:
        return {"accuracy": 0.1, "collapsed": True, "entropy": 0.0, "predicted_classes": 1.0}
    accuracy = 0.4 + (height if lr == best else 0.0)
    return {"accuracy": accuracy, "entropy": 0.2 if lr == 1e-3 else 0.6}


@pytest.mark.parametrize(
    ("rule", "settings", "score"),
    [
        ("oracle", {"lr": 1e-2}, 0.65),  # (0.4 + 0.9) / 2 beats (0.6 + 0.4) / 2
        ("first-domain", {"lr": 1e-4}, 0.6),
        ("extra-corruptions", {}, 0.7),  # 1e-3 is the default of tent: nothing to write
        ("label-free", {}, 4 * math.log(8) - 0.2),
    ],
)
def test_each_rule_picks_its_own(
    rule: str, settings: dict[str, Any], score: float, suite: Suite, store: Store, fake: Install
) -> None:
    fake(numbers)
    result = tune(suite, "tent", store, rule=rule, grid=GRID)
    assert result.settings == settings
    assert result.score == pytest.approx(score)
    assert [t.settings.get("lr") for t in result.trials if t.collapsed] == [1e-1]
    assert f"# rule: {rule}: chosen" in fragment(result)
    assert f'label = "tent (tuned: {rule})"' in fragment(result)
    if rule == "first-domain":  # never runs the others
        domains = {r["domain"] for record in store.records() for r in record.rows}
        assert domains == {"gaussian_noise"}
    with pytest.raises(ConfigError, match="oracle, first-domain, extra-corruptions, label-free"):
        tune(suite, "tent", store, rule="best")


def test_trials_are_tagged_and_the_suites_own_run_is_not(
    suite: Suite, store: Store, fake: Install, tmp_path: Path
) -> None:
    fake(numbers)
    tune(suite, "tent", store, rule="oracle", grid=GRID)
    tags = {record.run["hyperparameters"].get("lr"): record.tags for record in store.records()}
    assert tags.pop(None) == {"suite": "small", "case": "digits", "label": "tent"}
    assert {(t["tuning"], t["suite"]) for t in tags.values()} == {("oracle", "small/tune")}
    other = Store(tmp_path / "other")  # rules that judge on other data have no run of the suite
    for rule in ("first-domain", "extra-corruptions"):
        tune(suite, "tent", other, rule=rule, grid=GRID)
    assert {r.tags["suite"] for r in other.records()} == {"small/tune"}
    assert {r.tags["tuning"] for r in other.records()} == {"first-domain", "extra-corruptions"}


def test_greedy_goes_on_from_the_best_so_far(suite: Suite, store: Store, fake: Install) -> None:
    def hill(s: dict[str, Any], domain: str) -> dict[str, Any]:
        good = (s["lr"] == 1e-2) + (s["lam"] == 10.0) * (s["lr"] == 1e-2) + (s["k1"] == 5)
        return {"accuracy": 0.2 * good}

    made = fake(hill)
    grid = {"k1": [5, 10], "lam": [1.0, 10.0], "lr": [1e-4, 1e-2]}
    result = tune(suite, "g-fret", store, rule="oracle", grid=grid)
    assert result.settings == {"lr": 1e-2, "lam": 10.0, "k1": 5}
    assert made.ran[0] == {"lr": 1e-3}  # what the suite has
    assert len(made.ran) == 1 + 2 + 2 + 2
    full = tune(suite, "g-fret", store, rule="oracle", grid=grid, product=True)
    assert full.settings == result.settings
    assert len(full.trials) == 1 + 2 * 2 * 2
    assert full.search == "product"


def test_failures_are_reported_and_never_chosen(suite: Suite, store: Store, fake: Install) -> None:
    seen: list[Trial] = []
    fake(lambda s, domain: None if s["lr"] != 1e-4 else {"accuracy": 0.01})
    result = tune(suite, "tent", store, rule="oracle", grid=GRID, on_trial=seen.append)
    assert result.settings == {"lr": 1e-4}
    assert len(result.failed) == 3
    assert all("Oops: no" in t.error for t in result.failed)
    assert "3 failed" in fragment(result)
    assert [t.number for t in seen] == [0, 1, 2, 3]
    fake(lambda s, domain: {"entropy": 0.3 if s["lr"] == 1e-4 else None})
    diverged = tune(suite, "g-fret", store, rule="label-free", grid=GRID)
    assert diverged.settings == {"lr": 1e-4}
    assert "diverged" in diverged.failed[0].error


def test_nothing_better_and_nothing_at_all(
    suite: Suite, store: Store, fake: Install, tmp_path: Path
) -> None:
    fake(lambda settings, domain: {"accuracy": 0.5})
    result = tune(suite, "g-fret", store, rule="oracle", grid=GRID)
    assert (result.settings, result.best.number) == ({"lr": 1e-3}, 0)  # the suite's own
    assert "nothing was better" in fragment(result)
    made = fake(lambda settings, domain: None)
    grid = {**GRID, "k1": [1, 2, 3]}
    with pytest.raises(SuiteError, match=r"all 4 trials failed.*Oops: no"):
        tune(suite, "g-fret", Store(tmp_path / "other"), rule="oracle", grid=grid)
    assert len(made.ran) == 4  # k1 was not tried after every lr had failed


def test_which_method(suite: Suite, store: Store, fake: Install, text: str) -> None:
    fake(numbers)
    new = tune(suite, "s-fret", store, rule="oracle", grid={"lr": [1e-2]})  # not in the suite
    assert new.title == "s-fret"
    assert new.settings == {"lr": 1e-2}
    double = parse_suite(text + '[[methods]]\nname = "tent"\nlabel = "mild"\nlr = 1e-4\n', "two")
    assert tune(double, "mild", store, rule="oracle", grid=GRID).title == "mild"
    twins = (MethodEntry("tent", {}, "a"), MethodEntry("tent", {"lr": 0.1}, "b"))
    both = Suite("twins", "", double.cases, twins)
    with pytest.raises(SuiteError, match="2 entries of tent: a, b"):
        tune(both, "tent", store, rule="oracle", grid=GRID)
    with pytest.raises(SuiteError, match="no method 'tenta'"):
        tune(suite, "tenta", store, rule="oracle", grid=GRID)
    with pytest.raises(ConfigError, match="two searches"):
        tune(suite, "tent", store, rule="oracle", grid=GRID, product=True, optuna_trials=2)


# ---- optuna -------------------------------------------------------------------------------------


def peak(settings: dict[str, Any], domain: str) -> dict[str, Any]:
    return {"accuracy": 1 / (1 + abs(math.log10(settings["lr"]) + 4))}


def test_optuna_draws_inside_the_grids(suite: Suite, store: Store, fake: Install) -> None:
    fake(peak)
    result = tune(suite, "g-fret", store, rule="oracle", optuna_trials=15)
    assert result.search == "optuna"
    assert len(result.trials) == 16
    drawn = [t.settings for t in result.trials[1:]]
    assert all(1e-7 <= s["lr"] <= 5e-2 and 1e-6 <= s["lam"] <= 100 for s in drawn)
    assert all(type(s.get("k1", 100)) is int and 1 <= s.get("k1", 100) <= 300 for s in drawn)
    assert all(0.5 <= s.get("k2", 0.95) <= 1 for s in drawn)
    assert sum(s["lr"] < 1e-5 for s in drawn) > 2  # on a log scale
    assert result.score > 0.8
    assert store.local is not None
    assert (store.local / "tune" / "optuna.db").is_file()


@pytest.mark.slow
def test_optuna_resumes_as_if_uninterrupted(
    suite: Suite, store: Store, fake: Install, tmp_path: Path
) -> None:
    made = fake(peak)
    complete = tune(suite, "tent", Store(tmp_path / "other"), rule="oracle", optuna_trials=14)

    def stop(settings: dict[str, Any], domain: str) -> dict[str, Any]:
        if len(made.ran) == 12:
            raise KeyboardInterrupt
        return peak(settings, domain)

    made = fake(stop)
    with pytest.raises(KeyboardInterrupt):
        tune(suite, "tent", store, rule="oracle", optuna_trials=14)
    made = fake(peak)
    resumed = tune(suite, "tent", store, rule="oracle", optuna_trials=14)
    assert [t.settings for t in resumed.trials] == [t.settings for t in complete.trials]
    assert len(made.ran) == 15 - 11
    again = tune(suite, "tent", store, rule="oracle", optuna_trials=14)
    assert again.trials == resumed.trials
    assert again.runs_done == 0


def test_optuna_with_failures_and_text(
    suite: Suite, store: Store, fake: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fake(lambda s, d: None if s["variant"] == "released" else {"accuracy": 0.5})
    grid = {"variant": ["paper", "released"], "k2": [0.5, 0.75]}
    result = tune(suite, "g-fret", store, rule="oracle", grid=grid, optuna_trials=8)
    assert result.failed
    assert all(t.settings.get("variant") == "released" for t in result.failed)
    assert all(0.5 <= t.settings["k2"] <= 0.75 for t in result.trials[1:])
    count = len(made.ran)
    more = tune(suite, "g-fret", store, rule="oracle", grid=grid, optuna_trials=9)
    assert more.trials[:-1] == result.trials
    assert len(made.ran) == count + 1 + len(result.failed)  # failed runs are tried again
    with pytest.raises(ConfigError, match="optuna_trials=0"):
        tune(suite, "tent", store, rule="oracle", optuna_trials=0)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"extra 'tune'"):
        tune(suite, "tent", store, rule="oracle", optuna_trials=2)


# ---- real runs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", list(Rule))
def test_runs_are_kept_and_not_repeated(rule: Rule, suite: Suite, store: Store) -> None:
    grid = {"lr": [1e-3, 1e-2]}
    first = tune(suite, "tent", store, rule=rule, grid=grid, options=ONE)
    assert (first.runs_done, first.runs_found) == (2, 0)  # 1e-3 is where it starts
    assert sorted(k for t in first.trials for k in t.keys) == store.keys()
    again = tune(suite, "tent", store, rule=rule, grid=grid, options=ONE)
    assert (again.runs_done, again.runs_found) == (0, 2)
    assert again.trials == first.trials
    assert again.best == first.best


def test_runs_are_shared_with_the_suite(suite: Suite, store: Store) -> None:
    run_jobs(suite.restricted(methods=["tent"]).jobs(), store, options=ONE)
    result = tune(suite, "tent", store, rule="oracle", grid={"lr": [1e-2]}, options=ONE)
    assert (result.runs_done, result.runs_found) == (1, 1)
    first = tune(suite, "tent", store, rule="first-domain", grid={"lr": [1e-2]}, options=ONE)
    for short, long in zip(first.trials, result.trials, strict=True):
        record = store.get(long.keys[0])  # the first domain scores as in the complete stream
        assert record is not None
        assert record.rows[0]["domain"] == "gaussian_noise"
        assert short.score == record.rows[0]["accuracy"]


# ---- the fragment -------------------------------------------------------------------------------


def test_suite_and_fragment_are_a_suite(
    suite: Suite, store: Store, text: str, tmp_path: Path
) -> None:
    result = tune(suite, "tent", store, rule="label-free", grid={"lr": [1e-2]}, options=ONE)
    path = write_fragment(result, tmp_path / "new" / "tuned.toml")
    joined = parse_suite(text + path.read_text(encoding="utf-8"), "small")
    assert joined.methods[:-1] == suite.methods
    assert joined.methods[-1].name == "tent"
    assert joined.methods[-1].title == "tent (tuned: label-free)"
    assert joined.methods[-1].hyperparameters == result.settings
    jobs = joined.restricted(methods=["tent (tuned: label-free)"]).jobs()
    assert [job.run.key for job in jobs] == list(result.best.keys)  # nothing left to run
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        write_fragment(result, tmp_path / "file" / "tuned.toml")


def test_every_kind_of_value_comes_back(text: str) -> None:
    values = {"lr": 1e-10, "k1": 7, "l_r_a": False, "variant": "released", "lam": 100.0}
    start, best = Trial(0, {}, None, error="no"), Trial(1, values, 0.25, collapsed=True)
    names = ("s", "g-fret", 'with "quotes" and λ', Rule.ORACLE, "greedy")
    result = Result(*names, {"lr": [1e-10]}, (0, 1), ("a: b",), (start, best), best)
    entry = parse_suite(text + fragment(result), "small").methods[-1]
    assert entry.hyperparameters == values
    assert entry.title == 'with "quotes" and λ (tuned: oracle)'
    for fact in ("chosen with target labels", "0.2500", "before tuning: failed", "1 collapsed"):
        assert fact in fragment(result)
    with pytest.raises(ConfigError, match="cannot be written"):
        fragment(replace(result, best=Trial(1, {"mask": object()}, 0.5)))
