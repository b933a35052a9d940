"""Choose the hyper-parameters of a method by a stated rule.

A trial is one run per case and seed. Trials are ordinary runs: they go into the store, are shared
with suites, and a search that was interrupted finds them there.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...api import build_method
from ...errors import ConfigError, MissingExtraError, StoreError, SuiteError
from ...methods import find_method
from ..execute import run_jobs
from ..records import Job, canonical, digest
from ..store import Store
from ..suite import MethodEntry, Suite, describe
from .rules import CLAIMS, Root, Rule, judged_on, score

Settings = dict[str, Any]
Space = dict[str, list[Any]]

# The grids of the paper, in the order in which the greedy search walks them.
GRIDS: Space = {
    "lr": [float(f"{m}e{e}") for e in range(-7, -1) for m in (1, 5)],
    "lam": [float(f"1e{e}") for e in range(-6, 3)],
    "k1": [1, 5, 10, 15, 20, 50, 100, 200, 300],
    "k2": [0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
}


@dataclass(frozen=True)
class Trial:
    """One setting and how it did. `score` is None where a run failed: such a trial never wins."""

    number: int
    settings: Settings  # what differs from the method's defaults
    score: float | None
    keys: tuple[str, ...] = ()  # of its runs in the store: cases × seeds
    collapsed: bool = False  # in some domain, predictions fell into far fewer classes
    error: str = ""
    predicted_classes: tuple[float, ...] = ()  # effective ones, for every run and domain

    @property
    def failed(self) -> bool:
        return self.score is None

    @property
    def text(self) -> str:
        return describe(self.settings) or "defaults"


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
    trials = _Trials(suite, entry, rule, store, root, seeds, on_trial, execution)
    search = "product" if product else "greedy" if optuna_trials is None else "optuna"
    if optuna_trials is not None:
        _search_optuna(trials, space, optuna_trials)
    elif product:
        combinations = itertools.product(*space.values())
        trials.run([{}, *(dict(zip(space, values, strict=True)) for values in combinations)])
    else:
        _search_greedily(trials, space)
    tried = _mark_collapsed(list(trials.done.values()), rule)
    best = _best(tried)
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


# ---- the values to try --------------------------------------------------------------------------


def make_space(
    method: str, base: Mapping[str, Any], grid: Mapping[str, Sequence[Any]] | None = None
) -> Space:
    """The values to try, each checked now rather than after an hour of runs.

    The paper's parameters come first, in its order; others follow as given.
    """
    build_method(method, {})  # an unknown name is an error that lists the known ones
    if grid is None:
        fields = find_method(method).field_names()
        space = {name: values for name, values in GRIDS.items() if name in fields}
        if not space:
            raise ConfigError(
                f"{method} has none of {', '.join(GRIDS)}, so there is nothing of the paper's grids"
                f" to tune; give grid= over its own hyper-parameters: {', '.join(fields)}"
            )
        return space
    if not grid:
        raise ConfigError("the grid is empty; give at least one hyper-parameter with its values")
    space = {}
    for name in sorted(grid, key=lambda name: [*GRIDS, name].index(name)):
        values = grid[name]
        if isinstance(values, str | bytes) or not isinstance(values, Sequence) or not values:
            raise ConfigError(f"grid: {name}={values!r}; a list of at least one value is expected")
        for value in values:
            number = isinstance(value, int | float) and math.isfinite(value)
            if not number and not isinstance(value, str):
                raise ConfigError(
                    f"grid: {name} has {value!r}; finite numbers, text, true or false can be tried"
                )
            build_method(method, {**base, name: value}).check()
        space[name] = list(dict.fromkeys(values))
    return space


def parse_grid(pairs: Sequence[str]) -> Space:
    """A grid as typed on a command line: `lr=1e-4,1e-3`, values spelled as in TOML."""
    grid: Space = {}
    for pair in pairs:
        name, _, values = (part.strip() for part in pair.partition("="))
        try:
            found = tomllib.loads(f"values = [{values}]")["values"]
        except tomllib.TOMLDecodeError:
            found = [word.strip() for word in values.split(",") if word.strip()]
        if not name or not found or name in grid:
            raise ConfigError(f"--grid {pair!r}; write NAME=VALUE,VALUE, each name once")
        grid[name] = found
    return grid


# ---- trials -------------------------------------------------------------------------------------


class _Trials:
    """Runs settings of one method, each once, and remembers how they did."""

    def __init__(
        self,
        suite: Suite,
        entry: MethodEntry,
        rule: Rule,
        store: Store,
        root: Root,
        seeds: Sequence[int],
        on_trial: Callable[[Trial], None] | None,
        execution: dict[str, Any],
    ) -> None:
        self.suite, self.entry, self.rule, self.store = suite, entry, rule, store
        self.on_trial, self.execution = on_trial, execution
        self.done: dict[str, Trial] = {}  # by settings, in the order tried
        self.runs_done = self.runs_found = 0
        seeded = suite.restricted(seeds=seeds)
        visible, self.judged_on = judged_on(seeded, rule, root)
        self.jobs = replace(visible, methods=(entry,)).jobs(root)  # cases × seeds
        self._defaults = build_method(entry.name, {}).hyperparameters()
        # runs that are also runs of the suite: these cases with these settings
        self._suite_cases = {case.name for case in visible.cases if case in seeded.cases}
        self._suite_titles = {
            canonical(m.hyperparameters): m.title for m in suite.methods if m.name == entry.name
        }

    def run(self, changes: Sequence[Settings]) -> list[Trial]:
        """One trial for each set of changes to the suite's entry; all at once, for workers."""
        settings = [self._settings(change) for change in changes]
        new = {canonical(s): s for s in settings if canonical(s) not in self.done}
        jobs = {key: [self._job(job, s) for job in self.jobs] for key, s in new.items()}
        if jobs:
            every = list(itertools.chain(*jobs.values()))
            outcome = run_jobs(every, self.store, **self.execution)
            self.runs_done += len(outcome.records)
            self.runs_found += outcome.skipped
        for key, s in new.items():
            self.done[key] = self._trial(s, jobs[key])
            if self.on_trial is not None:
                self.on_trial(self.done[key])
        return [self.done[canonical(s)] for s in settings]

    def _settings(self, changes: Settings) -> Settings:
        """Without what equals the default, unless the suite has it: equal settings, equal runs."""
        own = self.entry.hyperparameters
        merged = {**own, **changes}
        return {k: v for k, v in merged.items() if k in own or v != self._defaults[k]}

    def _job(self, job: Job, settings: Settings) -> Job:
        """A run of the suite keeps the suite's tags. Others are tagged as trials of this rule,
        under another suite name: they do not belong into the suite's table."""
        title = self._suite_titles.get(canonical(settings))
        if title is not None and job.tags["case"] in self._suite_cases:
            tags = {**job.tags, "label": title}
        else:
            label = f"{self.entry.title} {describe(settings)}".strip()
            names = {"suite": f"{self.suite.name}/tune", "tuning": str(self.rule)}
            tags = {**job.tags, "label": label, **names}
        return replace(job, run=replace(job.run, hyperparameters=settings), tags=tags)

    def _trial(self, settings: Settings, jobs: Sequence[Job]) -> Trial:
        number, keys = len(self.done), tuple(job.run.key for job in jobs)
        records = []
        for key in keys:
            record = self.store.get(key)
            if record is None or record.status != "done":
                error = "the run left no record" if record is None else record.error.strip()
                return Trial(number, settings, None, keys, error=error)
            records.append(record)
        value = score(self.rule, records)
        rows = [row for record in records for row in record.rows]
        return Trial(
            number,
            settings,
            value,
            keys,
            collapsed=any(row["collapsed"] for row in rows),
            error="the predictions are not finite: the model diverged" if value is None else "",
            predicted_classes=tuple(row["predicted_classes"] or 1.0 for row in rows),
        )


def _best(trials: Sequence[Trial]) -> Trial | None:
    """The highest score; the earlier of equals, so the suite's own setting needs to be beaten."""
    scored = [t for t in trials if t.score is not None]
    return max(scored, key=lambda t: (t.score, -t.number)) if scored else None


def _mark_collapsed(trials: list[Trial], rule: Rule) -> list[Trial]:
    """Records know collapse by their labels. The label-free rule marks, in some domain, fewer than
    0.3 of the classes that another trial predicts."""
    if rule is not Rule.LABEL_FREE:
        return trials
    counts = [t.predicted_classes for t in trials if not t.failed]
    most = [max(domain) for domain in zip(*counts, strict=True)]

    def collapsed(trial: Trial) -> bool:
        pairs = zip(trial.predicted_classes, most, strict=True)
        return not trial.failed and any(count < 0.3 * best for count, best in pairs)

    return [replace(t, collapsed=collapsed(t)) for t in trials]


# ---- searches -----------------------------------------------------------------------------------


def _search_greedily(trials: _Trials, space: Space) -> None:
    """One parameter after another, the others at the best found so far."""
    changes: Settings = {}
    [best] = trials.run([changes])
    for name, values in space.items():
        options = [{**changes, name: value} for value in values]
        found = trials.run(options)
        winner = _best([best, *found])
        if winner is None:
            return  # nothing runs: further parameters would not either
        if winner in found:
            best, changes = winner, options[found.index(winner)]


def _search_optuna(trials: _Trials, space: Space, count: int) -> None:
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


# ---- the chosen setting as a piece of a suite ---------------------------------------------------


def fragment(result: Result) -> str:
    """TOML text: one [[methods]] entry, to be appended to a suite.

    JSON writes numbers, text, true, false and lists of them as TOML does.
    """
    best, start = result.best, result.trials[0]
    measure = "label-free score" if result.rule is Rule.LABEL_FREE else "mean accuracy"
    untuned = "failed" if start.score is None else f"{start.score:.4f}"
    seeds = ", ".join(map(str, result.seeds))
    collapsed = sum(t.collapsed for t in result.trials)
    notes = [
        f"{result.title}, tuned on the suite {result.suite!r}",
        f"rule: {result.rule}: {CLAIMS[result.rule]}",
        *(f"judged on {text}" for text in result.judged_on),
        f"score: {result.score:.4f} ({measure}); before tuning: {untuned} ({start.text})",
        f"trials: {len(result.trials)} ({result.search} over {', '.join(result.space)};"
        f" seeds {seeds}), {len(result.failed)} failed, {collapsed} collapsed",
    ]
    if best.collapsed:
        notes.append("the chosen trial collapsed in some domain: nothing that was tried is good")
    if best.number == start.number:
        notes.append("nothing was better than the setting the search began with")
    entry = {"name": result.method, "label": result.label, **best.settings}
    lines = [*(f"# {' '.join(note.split())}" for note in notes), "[[methods]]"]
    for key, value in entry.items():
        try:
            lines.append(f"{key} = {json.dumps(value, ensure_ascii=False, allow_nan=False)}")
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{key}={value!r} cannot be written into a suite") from error
    return "\n".join(lines) + "\n"


def write_fragment(result: Result, path: str | os.PathLike[str]) -> Path:
    """The same, as a file; replaces what is there."""
    file = Path(path)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(fragment(result), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {str(file)!r}: {error.strerror or error}") from error
    return file
