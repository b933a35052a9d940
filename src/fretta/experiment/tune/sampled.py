"""Optuna instead of a grid: settings drawn where earlier ones did well (TPE)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

from ...errors import ConfigError, MissingExtraError
from ..records import digest
from .space import Space
from .trials import Trials

DIGITS = 3  # significant digits of a drawn number: a setting one can read


def sample(trials: Trials, space: Space, count: int) -> None:
    """The suite's own setting, then `count` drawn ones, counting those of earlier calls.

    The study is kept in STORE/tune/optuna.db (a store on another machine keeps none: the draws
    are seeded and the runs are in the store, so the same trials come again and cost nothing).
    """
    if isinstance(count, bool) or count < 1:
        raise ConfigError(f"optuna_trials={count!r}; a whole number from 1 is expected")
    with _study(trials, space) as (optuna, study):
        trials.run([{}])
        state = optuna.trial.TrialState
        for cut_off in study.get_trials(deepcopy=False, states=(state.RUNNING,)):
            study.tell(cut_off.number, state=state.FAIL)
        counted = [t for t in study.trials if t.state == state.COMPLETE or "error" in t.user_attrs]
        for known in counted[:count]:
            trials.run([_rounded(known.params, space)])
        for number in range(len(counted), count):
            # A seed for each trial: a study that was interrupted draws what it would have drawn.
            study.sampler = optuna.samplers.TPESampler(seed=number)
            drawn = study.ask(_distributions(optuna, space))
            [trial] = trials.run([_rounded(drawn.params, space)])
            if trial.score is None:
                drawn.set_user_attr("error", trial.error.splitlines()[-1] if trial.error else "")
                study.tell(drawn, state=state.FAIL)
            else:
                study.tell(drawn, trial.score)


@contextlib.contextmanager
def _study(trials: Trials, space: Space) -> Iterator[tuple[Any, Any]]:
    """A study named by everything that decides its scores, quiet, and closed afterwards."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise MissingExtraError("optuna", "tune", "tuning with optuna_trials=") from error
    decides = [[job.run.key for job in trials.jobs], space]
    name = f"{trials.entry.name}-{trials.rule}-{digest(decides)[:12]}"
    loudness = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = None
    try:
        if trials.store.local is not None:
            trials.store.check()
            folder = trials.store.local / "tune"
            folder.mkdir(parents=True, exist_ok=True)
            storage = optuna.storages.RDBStorage(f"sqlite:///{folder / 'optuna.db'}")
        yield (
            optuna,
            optuna.create_study(
                storage=storage, study_name=name, direction="maximize", load_if_exists=True
            ),
        )
    finally:
        if storage is not None:
            storage.remove_session()
            storage.engine.dispose()
        optuna.logging.set_verbosity(loudness)


def _distributions(optuna: Any, space: Space) -> dict[str, Any]:
    """Ranges that span the grids; on a log scale where a grid spans two orders of magnitude."""
    made = {}
    for name, values in space.items():
        low, high = _span(values)
        if low is None or high is None:
            made[name] = optuna.distributions.CategoricalDistribution(values)
            continue
        log = low > 0 and high / low >= 100
        whole = all(isinstance(v, int) for v in values)
        kind = "IntDistribution" if whole else "FloatDistribution"
        made[name] = getattr(optuna.distributions, kind)(low, high, log=log)
    return made


def _span(values: list[Any]) -> tuple[Any, Any]:
    """Smallest and largest, or (None, None) for what is not two different numbers."""
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    return (min(values), max(values)) if numbers and len(values) > 1 else (None, None)


def _rounded(params: dict[str, Any], space: Space) -> dict[str, Any]:
    """Drawn numbers to a few digits, never outside of the range."""
    made = {}
    for name, value in params.items():
        if isinstance(value, float) and math.isfinite(value):
            low, high = _span(space[name])
            short = float(f"{value:.{DIGITS}g}")
            value = short if low is None else min(max(short, low), high)
        made[name] = value
    return {name: made[name] for name in space}
