"""Trials: settings of one method, each run once, and how they did."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...api import build_method
from ..execute import run_jobs
from ..metrics import collapsed
from ..records import Job, canonical
from ..store import Store
from ..suite import MethodEntry, Suite, describe
from .rules import Root, Rule, judged_on, score
from .space import Settings


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


class Trials:
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


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The highest score; the earlier of equals, so the suite's own setting needs to be beaten."""
    scored = [t for t in trials if t.score is not None]
    return max(scored, key=lambda t: (t.score, -t.number)) if scored else None


def mark_collapsed(trials: list[Trial], rule: Rule) -> list[Trial]:
    """Records know collapse by their labels. The label-free rule marks, in some domain, far fewer
    classes than another trial predicts."""
    if rule is not Rule.LABEL_FREE:
        return trials
    counts = [t.predicted_classes for t in trials if not t.failed]
    most = [max(domain) for domain in zip(*counts, strict=True)]

    def fewer(trial: Trial) -> bool:
        pairs = zip(trial.predicted_classes, most, strict=True)
        return not trial.failed and any(collapsed(count, best) for count, best in pairs)

    return [replace(t, collapsed=fewer(t)) for t in trials]
