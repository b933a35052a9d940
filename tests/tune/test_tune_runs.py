"""Tuning with real runs, and the fragment it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from fretta.errors import ConfigError, StoreError
from fretta.experiment.execute import Options, run_jobs
from fretta.experiment.store import Store
from fretta.experiment.suite import Suite, load_suite, parse_suite
from fretta.experiment.tune import Result, Rule, Trial, fragment, tune, write_fragment

ONE = Options(threads=1)


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


def test_the_first_domain_scores_as_in_the_whole_stream(suite: Suite, store: Store) -> None:
    first = tune(suite, "tent", store, rule="first-domain", grid={"lr": [1e-2]}, options=ONE)
    whole = tune(suite, "tent", store, rule="oracle", grid={"lr": [1e-2]}, options=ONE)
    for short, long in zip(first.trials, whole.trials, strict=True):
        record = store.get(long.keys[0])
        assert record is not None
        assert record.rows[0]["domain"] == "gaussian_noise"
        assert short.score == record.rows[0]["accuracy"]


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
    file = tmp_path / "joined.toml"
    file.write_text(text + path.read_text(encoding="utf-8"), encoding="utf-8")
    jobs = load_suite(file).restricted(methods=["tent (tuned: label-free)"]).jobs()
    assert [job.run.key for job in jobs] == list(result.best.keys)  # nothing left to run


def made_up(**changes: object) -> Result:
    before, best = Trial(0, {}, None, error="no"), Trial(1, {"lr": 5e-7}, 0.25, collapsed=True)
    facts = {
        "suite": "s",
        "method": "g-fret",
        "title": "mine",
        "rule": Rule.ORACLE,
        "search": "greedy",
        "space": {"lr": [5e-7]},
        "seeds": (0, 1),
        "judged_on": ("a: b",),
        "trials": (before, best),
        "best": best,
    }
    return Result(**{**facts, **changes})  # type: ignore[arg-type]


def test_the_fragment_says_how_it_was_chosen(text: str) -> None:
    lines = fragment(made_up()).splitlines()
    assert lines == [
        "# mine, tuned on the suite 's'",
        "# rule: oracle: chosen with target labels",
        "# judged on a: b",
        "# score: 0.2500 (mean accuracy); before tuning: failed (defaults)",
        "# trials: 2 (greedy over lr; seeds 0, 1), 1 failed, 1 collapsed",
        "# the chosen trial collapsed in some domain: nothing that was tried is good",
        "[[methods]]",
        'name = "g-fret"',
        'label = "mine (tuned: oracle)"',
        "lr = 5e-07",
    ]


def test_every_kind_of_value_comes_back(text: str) -> None:
    values = {"lr": 1e-10, "k1": 7, "l_r_a": False, "variant": "released", "lam": 100.0}
    result = made_up(best=Trial(1, values, 0.5), title='with "quotes" and λ')
    entry = parse_suite(text + fragment(result), "small").methods[-1]
    assert entry.hyperparameters == values
    assert entry.title == 'with "quotes" and λ (tuned: oracle)'
    with pytest.raises(ConfigError, match="cannot be written"):
        fragment(made_up(best=Trial(1, {"mask": object()}, 0.5)))


def test_a_fragment_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        write_fragment(made_up(), tmp_path / "file" / "tuned.toml")
