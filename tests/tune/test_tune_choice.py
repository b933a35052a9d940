"""Which setting is chosen, with made-up numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from fretta.errors import ConfigError, MissingExtraError, SuiteError
from fretta.experiment.store import Store
from fretta.experiment.suite import MethodEntry, Suite, parse_suite
from fretta.experiment.tune import Rule, fragment, tune

GRID = {"lr": [1e-4, 1e-3, 1e-2, 1e-1]}


def numbers(settings: dict[str, Any], domain: str) -> dict[str, Any]:
    """A different lr is best in each place; 0.1 collapses and is the most confident of all."""
    best = {"gaussian_noise": 1e-4, "fog": 1e-2}.get(domain, 1e-3)
    lr = settings["lr"]
    height = {"gaussian_noise": 0.2, "fog": 0.5}.get(domain, 0.3)
    accuracy = 0.4 + (height if lr == best else 0.0)
    if lr == 1e-1:
        return {
            "accuracy": 0.1,
            "collapsed": True,
            "entropy": 0.0,
            "predicted_classes": 1.0,
            "nrs_after": 0.0,
        }
    return {"accuracy": accuracy, "entropy": 0.2 if lr == 1e-3 else 0.6}


@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        ("oracle", {"lr": 1e-2}),  # (0.4 + 0.9) / 2 beats (0.6 + 0.4) / 2
        ("first-domain", {"lr": 1e-4}),
        ("extra-corruptions", {}),  # 1e-3 is the default of tent: nothing to write
        ("label-free", {}),
    ],
)
def test_each_rule_picks_its_own(
    rule: str, settings: dict[str, Any], suite: Suite, store: Store, fake: Callable[..., Any]
) -> None:
    fake(numbers)
    result = tune(suite, "tent", store, rule=rule, grid=GRID)
    assert result.settings == settings
    assert result.rule is Rule(rule)
    marked = [t.settings.get("lr") for t in result.trials if t.collapsed]
    assert marked == [1e-1]
    assert f"# rule: {rule}: chosen" in fragment(result)
    if rule != "label-free":
        assert result.score == max(t.score for t in result.trials if t.score is not None)


def test_scores_are_what_the_rule_says(
    suite: Suite, store: Store, fake: Callable[..., Any]
) -> None:
    fake(numbers)
    by_rule = {r: tune(suite, "tent", store, rule=r, grid=GRID).score for r in Rule}
    assert by_rule[Rule.ORACLE] == pytest.approx(0.65)
    assert by_rule[Rule.FIRST_DOMAIN] == pytest.approx(0.6)
    assert by_rule[Rule.EXTRA_CORRUPTIONS] == pytest.approx(0.7)
    assert by_rule[Rule.LABEL_FREE] == pytest.approx(4 * math.log(8) - 0.2)


def test_first_domain_never_runs_the_others(
    suite: Suite, store: Store, fake: Callable[..., Any]
) -> None:
    fake(numbers)
    tune(suite, "tent", store, rule="first-domain", grid=GRID)
    assert {r["domain"] for record in store.records() for r in record.rows} == {"gaussian_noise"}


def test_everything_oracle_writes_is_labeled(
    suite: Suite, store: Store, fake: Callable[..., Any]
) -> None:
    fake(numbers)
    result = tune(suite, "tent", store, rule="oracle", grid=GRID)
    text = fragment(result)
    assert "oracle: chosen with target labels" in text
    assert 'label = "tent (tuned: oracle)"' in text
    tags = {record.run["hyperparameters"].get("lr"): record.tags for record in store.records()}
    assert all(tags[lr]["tuning"] == "oracle" for lr in (1e-4, 1e-2, 1e-1))
    assert all(tags[lr]["suite"] == "small/tune" for lr in (1e-4, 1e-2, 1e-1))
    # the suite's own setting was nobody's choice: it stays the suite's run
    assert tags[None] == {"suite": "small", "case": "digits", "label": "tent"}


def test_other_data_is_never_taken_for_the_suites_own(
    suite: Suite, store: Store, fake: Callable[..., Any]
) -> None:
    fake(numbers)
    for rule in ("first-domain", "extra-corruptions"):
        tune(suite, "tent", store, rule=rule, grid=GRID)
    assert {r.tags["suite"] for r in store.records()} == {"small/tune"}
    assert {r.tags["tuning"] for r in store.records()} == {"first-domain", "extra-corruptions"}


def test_greedy_goes_on_from_the_best_so_far(
    suite: Suite, store: Store, fake: Callable[..., Any]
) -> None:
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


def test_the_suites_setting_must_be_beaten(
    suite: Suite, store: Store, fake: Callable[..., Any]
) -> None:
    fake(lambda settings, domain: {"accuracy": 0.5})
    result = tune(suite, "g-fret", store, rule="oracle", grid=GRID)
    assert result.settings == {"lr": 1e-3}
    assert result.best.number == 0
    assert "nothing was better" in fragment(result)


def test_failures_are_reported_and_never_chosen(
    suite: Suite, store: Store, fake: Callable[..., Any]
) -> None:
    seen = []
    fake(lambda s, domain: None if s["lr"] != 1e-4 else {"accuracy": 0.01})
    result = tune(suite, "tent", store, rule="oracle", grid=GRID, on_trial=seen.append)
    assert result.settings == {"lr": 1e-4}
    assert len(result.failed) == 3
    assert all("Oops: no" in t.error for t in result.failed)
    assert "3 failed" in fragment(result)
    assert [t.number for t in seen] == [0, 1, 2, 3]


def test_divergence_is_a_failure_of_the_label_free_rule(
    suite: Suite, store: Store, fake: Callable[..., Any]
) -> None:
    fake(lambda s, domain: {"entropy": 0.3 if s["lr"] == 1e-4 else None})
    result = tune(suite, "tent", store, rule="label-free", grid=GRID)
    assert result.settings == {"lr": 1e-4}
    assert "diverged" in result.failed[0].error


def test_nothing_works(suite: Suite, store: Store, fake: Callable[..., Any]) -> None:
    made = fake(lambda settings, domain: None)
    grid = {**GRID, "k1": [1, 2, 3]}
    with pytest.raises(SuiteError, match=r"all 4 trials failed.*Oops: no"):
        tune(suite, "g-fret", store, rule="oracle", grid=grid)
    assert len(made.ran) == 4  # k1 was not tried after every lr had failed


def test_which_method(suite: Suite, store: Store, fake: Callable[..., Any], text: str) -> None:
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


def test_optuna_draws_inside_the_grids(
    suite: Suite, store: Store, fake: Callable[..., Any]
) -> None:
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


def test_optuna_interrupted_goes_on_as_if_it_had_not_been(
    suite: Suite, store: Store, fake: Callable[..., Any], tmp_path: Any
) -> None:
    made = fake(peak)
    whole = tune(suite, "tent", Store(tmp_path / "other"), rule="oracle", optuna_trials=14)

    def stop(settings: dict[str, Any], domain: str) -> dict[str, Any]:
        if len(made.ran) == 12:
            raise KeyboardInterrupt
        return peak(settings, domain)

    made = fake(stop)
    with pytest.raises(KeyboardInterrupt):
        tune(suite, "tent", store, rule="oracle", optuna_trials=14)
    made = fake(peak)
    resumed = tune(suite, "tent", store, rule="oracle", optuna_trials=14)
    assert [t.settings for t in resumed.trials] == [t.settings for t in whole.trials]
    assert len(made.ran) == 15 - 11
    again = tune(suite, "tent", store, rule="oracle", optuna_trials=14)
    assert again.trials == resumed.trials
    assert again.runs_done == 0


def test_optuna_with_failures_and_words(
    suite: Suite, store: Store, fake: Callable[..., Any]
) -> None:
    made = fake(lambda s, d: None if s["variant"] == "released" else {"accuracy": 0.5})
    grid = {"variant": ["paper", "released"], "k2": [0.5, 0.75]}
    result = tune(suite, "g-fret", store, rule="oracle", grid=grid, optuna_trials=8)
    assert result.failed
    assert all(t.settings.get("variant") == "released" for t in result.failed)
    assert all(0.5 <= t.settings["k2"] <= 0.75 for t in result.trials[1:])
    count = len(made.ran)
    more = tune(suite, "g-fret", store, rule="oracle", grid=grid, optuna_trials=9)
    assert len(more.trials) == len(result.trials) + 1
    assert len(made.ran) == count + 1 + len(result.failed)  # failed runs are tried again


def test_optuna_wrong_count(suite: Suite, store: Store) -> None:
    with pytest.raises(ConfigError, match="optuna_trials=0"):
        tune(suite, "tent", store, rule="oracle", optuna_trials=0)


def test_optuna_absent(
    suite: Suite, store: Store, fake: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fake(peak)
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"fretta\[tune\]"):
        tune(suite, "tent", store, rule="oracle", optuna_trials=2)
    assert not made.ran
