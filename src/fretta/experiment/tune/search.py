"""Choose the hyper-parameters of a method by a stated rule.

A trial is one run per case and seed. Trials are ordinary runs: they go into the store, are shared
with suites, and a search that was interrupted finds them there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError, MissingExtraError, SuiteError
from ...methods import find_method
from ..records import digest
from ..store import Store
from ..suite import MethodEntry, Suite
from .rules import Root, Rule
from .space import Settings, Space, make_space
from .trials import Trial, Trials, best_of, mark_collapsed


@dataclass(frozen=True)
class Result:
    """The best setting by one rule, and everything that was tried."""

    suite: str
    method: str
    title: str  # what the suite calls the method
    rule: Rule
    search: str  # "greedy", "product" or "optuna"
    space: Space
    seeds: tuple[int, ...]
    judged_on: tuple[str, ...]  # case: domains, as the rule chose them
    trials: tuple[Trial, ...]  # the first is the setting the suite had
    best: Trial
    runs_done: int = 0
    runs_found: int = 0  # already in the store

    @property
    def settings(self) -> Settings:
        return self.best.settings

    @property
    def score(self) -> float:
        return float("nan") if self.best.score is None else self.best.score

    @property
    def label(self) -> str:
        """What tables call the tuned method: the rule is part of its name."""
        return f"{self.title} (tuned: {self.rule})"

    @property
    def failed(self) -> tuple[Trial, ...]:
        return tuple(t for t in self.trials if t.failed)


def tune(
    suite: Suite,
    method: str,
    store: Store,
    *,
    rule: str | Rule,
    grid: Mapping[str, Sequence[Any]] | None = None,
    product: bool = False,
    optuna_trials: int | None = None,
    root: Root = None,
    seeds: Sequence[int] = (0,),
    on_trial: Callable[[Trial], None] | None = None,
    **execution: Any,
) -> Result:
    """One setting for all cases of the suite, the best by `rule`.

    method         name or label in the suite, whose settings are the start; or any other method,
                   from its defaults
    rule           oracle, first-domain, extra-corruptions or label-free: see `Rule`
    grid           values by hyper-parameter; None: the paper's grids
    product        every combination instead of one parameter after another
    optuna_trials  draw this many settings within the span of the grids instead
    on_trial       called with each trial when its runs are done
    execution      parallel, ray, options, on_event of `run_jobs`
    """
    rule = Rule.parse(rule)
    if product and optuna_trials is not None:
        raise ConfigError("product=True and optuna_trials= are two searches; choose one of them")
    entry = _find_entry(suite, method)
    space = make_space(entry.name, entry.hyperparameters, grid)
    trials = Trials(suite, entry, rule, store, root, seeds, on_trial, execution)
    search = "product" if product else "greedy" if optuna_trials is None else "optuna"
    if optuna_trials is not None:
        _search_optuna(trials, space, optuna_trials)
    elif product:
        combinations = itertools.product(*space.values())
        trials.run([{}, *(dict(zip(space, values, strict=True)) for values in combinations)])
    else:
        _search_greedily(trials, space)
    tried = mark_collapsed(list(trials.done.values()), rule)
    best = best_of(tried)
    if best is None:
        raise SuiteError(
            f"suite {suite.name!r}, {entry.title}: all {len(tried)} trials failed, so there is"
            f" nothing to choose from; the first error: {tried[0].error.splitlines()[-1]}"
        )
    return Result(
        suite=suite.name,
        method=entry.name,
        title=entry.title,
        rule=rule,
        search=search,
        space=space,
        seeds=tuple(seeds),
        judged_on=trials.judged_on,
        trials=tuple(tried),
        best=best,
        runs_done=trials.runs_done,
        runs_found=trials.runs_found,
    )


def _find_entry(suite: Suite, method: str) -> MethodEntry:
    """The suite's entry of that label or name; a method it does not have starts from defaults."""
    titled = [m for m in suite.methods if m.title == method]
    found = titled or [m for m in suite.methods if m.name == method]
    if len(found) > 1:
        raise SuiteError(
            f"suite {suite.name!r} has {len(found)} entries of {method}:"
            f" {', '.join(m.title for m in found)}; name one of these labels"
        )
    if found:
        return found[0]
    try:
        find_method(method)
    except ConfigError as error:
        raise SuiteError(f"suite {suite.name!r} has no method {method!r}; {error}") from error
    return MethodEntry(method)


# ---- searches -----------------------------------------------------------------------------------


def _search_greedily(trials: Trials, space: Space) -> None:
    """One parameter after another, the others at the best found so far."""
    changes: Settings = {}
    [best] = trials.run([changes])
    for name, values in space.items():
        options = [{**changes, name: value} for value in values]
        found = trials.run(options)
        winner = best_of([best, *found])
        if winner is None:
            return  # nothing runs: further parameters would not either
        if winner in found:
            best, changes = winner, options[found.index(winner)]


def _search_optuna(trials: Trials, space: Space, count: int) -> None:
    """The suite's own setting, then `count` settings drawn by TPE.

    Draws are seeded, one seed per draw, and runs are in the store: a search that is called again
    draws the same settings, finds their runs and goes on. STORE/tune/optuna.db is for looking at.
    """
    if isinstance(count, bool) or count < 1:
        raise ConfigError(f"optuna_trials={count!r}; a whole number from 1 is expected")
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise MissingExtraError("optuna", "tune", "tuning with optuna_trials=") from error
    ranges = {name: _distribution(optuna.distributions, values) for name, values in space.items()}
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = None
    if trials.store.local is not None:
        trials.store.check()
        folder = trials.store.local / "tune"
        folder.mkdir(parents=True, exist_ok=True)
        storage = optuna.storages.RDBStorage(f"sqlite:///{folder / 'optuna.db'}")
    try:
        decides = [[job.run.key for job in trials.jobs], space]
        name = f"{trials.entry.name}-{trials.rule}-{digest(decides)[:12]}"
        if storage is not None and name in optuna.get_all_study_names(storage):
            optuna.delete_study(study_name=name, storage=storage)
        study = optuna.create_study(storage=storage, study_name=name, direction="maximize")
        trials.run([{}])
        for number in range(count):
            study.sampler = optuna.samplers.TPESampler(seed=number)
            drawn = study.ask(ranges)
            [trial] = trials.run([{k: _rounded(drawn.params[k], space[k]) for k in space}])
            state = optuna.trial.TrialState.FAIL if trial.failed else None
            study.tell(drawn, trial.score, state=state)
    finally:
        if storage is not None:
            storage.remove_session()
            storage.engine.dispose()
        optuna.logging.set_verbosity(verbosity)


def _distribution(kinds: Any, values: list[Any]) -> Any:
    """The range of a grid; on a log scale where it spans two orders of magnitude."""
    if not _is_range(values):
        return kinds.CategoricalDistribution(values)
    low, high = min(values), max(values)
    integers = all(isinstance(v, int) for v in values)
    kind = kinds.IntDistribution if integers else kinds.FloatDistribution
    return kind(low, high, log=low > 0 and high / low >= 100)


def _is_range(values: list[Any]) -> bool:
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return numbers and len(values) > 1


def _rounded(value: Any, values: list[Any]) -> Any:
    """A drawn number to three digits, never outside of the range."""
    if not isinstance(value, float) or not _is_range(values):
        return value
    return min(max(float(f"{value:.3g}"), min(values)), max(values))
