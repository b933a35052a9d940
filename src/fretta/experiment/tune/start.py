"""Choose the settings of a method by a stated rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...errors import ConfigError, SuiteError
from ...methods import find_method, list_methods
from ..execute import OnEvent, Options
from ..store import Store
from ..suite import MethodEntry, Suite
from .rules import Root, judged
from .sampled import sample
from .search import greedy
from .search import product as every_combination
from .space import make_space
from .trials import OnTrial, Trials, best_of, marked
from .values import Result, Rule


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
    parallel: int = 1,
    ray: str | None = None,
    options: Options | None = None,
    on_event: OnEvent | None = None,
    on_trial: OnTrial | None = None,
) -> Result:
    """One setting for all cases of the suite, the best by `rule`.

    method         name or label in the suite, whose settings are the start; or any other method,
                   from its defaults
    rule           oracle, first-domain, extra-corruptions or label-free: see `Rule`
    grid           values by hyper-parameter; None: the paper's grids
    product        every combination instead of one parameter after another
    optuna_trials  draw this many settings within the span of the grids instead
    on_trial       told each trial when its runs are there
    """
    chosen = Rule.parse(rule)
    if product and optuna_trials is not None:
        raise ConfigError("product=True and optuna_trials= are two searches; ask for one of them")
    entry = _entry(suite, method)
    space = make_space(entry.name, entry.hyperparameters, grid)
    seeded = suite.restricted(seeds=seeds)
    view, words = judged(seeded, chosen, root)
    jobs = replace(view, methods=(entry,)).jobs(root)
    trials = Trials(
        suite,
        entry,
        jobs,
        chosen,
        store,
        shared=[case.name for case in view.cases if case in seeded.cases],
        parallel=parallel,
        ray=ray,
        options=options,
        on_event=on_event,
        on_trial=on_trial,
    )
    if optuna_trials is not None:
        sample(trials, space, optuna_trials)
    elif product:
        every_combination(trials, space)
    else:
        greedy(trials, space)
    tried = marked(list(trials.done.values()), chosen)
    best = best_of(tried)
    if best is None:
        raise SuiteError(
            f"suite {suite.name!r}, {entry.title}: all {len(tried)} trials failed, so there is"
            f" nothing to choose from; the first said: {tried[0].error.splitlines()[-1]}"
        )
    return Result(
        suite=suite.name,
        method=entry.name,
        title=entry.title,
        rule=chosen,
        search="optuna" if optuna_trials is not None else "product" if product else "greedy",
        space=space,
        seeds=tuple(seeds),
        judged_on=words,
        trials=tried,
        best=best,
        runs_done=trials.runs_done,
        runs_found=trials.runs_found,
    )


def _entry(suite: Suite, method: str) -> MethodEntry:
    """The suite's entry of that label or name; a method it does not have starts from defaults."""
    found = [m for m in suite.methods if m.title == method]
    found = found or [m for m in suite.methods if m.name == method]
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
        titles = sorted({m.title for m in suite.methods} | set(list_methods()))
        raise SuiteError(
            f"suite {suite.name!r} has no method {method!r}; choose from {', '.join(titles)}"
        ) from error
    return MethodEntry(method)
