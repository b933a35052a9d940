"""Trials are ordinary runs: they go into the store, are shared with suites, and resume."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from ...api import build_method
from ...errors import StoreError
from ..execute import OnEvent, Options, run_jobs
from ..records import Job, Record, canonical
from ..store import Store
from ..suite import MethodEntry, Suite
from .rules import score
from .values import Rule, Trial, describe

OnTrial = Callable[[Trial], None]


class Trials:
    """Runs settings of one method, each once, and remembers how they did."""

    def __init__(
        self,
        suite: Suite,
        entry: MethodEntry,
        jobs: Sequence[Job],
        rule: Rule,
        store: Store,
        *,
        shared: Collection[str] = (),
        parallel: int = 1,
        ray: str | None = None,
        options: Options | None = None,
        on_event: OnEvent | None = None,
        on_trial: OnTrial | None = None,
    ) -> None:
        self.suite, self.entry, self.rule, self.store = suite, entry, rule, store
        self.jobs = list(jobs)  # cases × seeds; only the hyper-parameters change
        self.how: dict[str, Any] = {
            "parallel": parallel,
            "ray": ray,
            "options": options,
            "on_event": on_event,
        }
        self.on_trial = on_trial
        self.done: dict[str, Trial] = {}  # by settings, in the order tried
        self.runs_done = self.runs_found = 0
        self._defaults = build_method(entry.name, {}).hyperparameters()
        self._shared = set(shared)  # cases that are judged on exactly what the suite runs
        self._own = {
            canonical(m.hyperparameters): m.title for m in suite.methods if m.name == entry.name
        }

    def settings(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Hyper-parameters as a run holds them: without what equals the default, unless the suite
        says it too. Equal settings then are the same run."""
        merged = {**self.entry.hyperparameters, **changes}
        return {
            k: v
            for k, v in merged.items()
            if k in self.entry.hyperparameters or v != self._defaults[k]
        }

    def run(self, wanted: Sequence[dict[str, Any]]) -> list[Trial]:
        """One trial for each set of changes to the suite's entry; all at once, so that workers
        have something to share."""
        settings = [self.settings(changes) for changes in wanted]
        fresh = {canonical(s): s for s in settings if canonical(s) not in self.done}
        jobs = {name: [self._job(job, s) for job in self.jobs] for name, s in fresh.items()}
        if jobs:
            outcome = run_jobs([j for each in jobs.values() for j in each], self.store, **self.how)
            self.runs_done += len(outcome.records)
            self.runs_found += outcome.skipped
        for name, s in fresh.items():
            self.done[name] = trial = self._trial(s, jobs[name])
            if self.on_trial is not None:
                self.on_trial(trial)
        return [self.done[canonical(s)] for s in settings]

    def _job(self, job: Job, settings: dict[str, Any]) -> Job:
        """A run with these settings. One that the suite has anyway keeps the suite's names: it is
        nobody's choice. All others are tagged as trials of this rule, and under another suite
        name: they do not belong into the suite's table."""
        tags = {**job.tags, "label": f"{self.entry.title} {describe(settings)}".strip()}
        title = self._own.get(canonical(settings))
        if title is not None and job.tags["case"] in self._shared:
            tags["label"] = title
        else:
            tags |= {"suite": f"{self.suite.name}/tune", "tuning": str(self.rule)}
        return replace(job, run=replace(job.run, hyperparameters=settings), tags=tags)

    def _trial(self, settings: dict[str, Any], jobs: Sequence[Job]) -> Trial:
        number, keys = len(self.done), tuple(job.run.key for job in jobs)
        records: list[Record] = []
        for key in keys:
            try:
                record = self.store.get(key)
            except StoreError as error:
                return Trial(number, settings, None, keys, error=str(error))
            if record is None or record.status != "done":
                text = "the run left no record" if record is None else record.error.strip()
                return Trial(number, settings, None, keys, error=text)
            records.append(record)
        value = score(self.rule, records)
        rows = [row for record in records for row in record.rows]
        return Trial(
            number,
            settings,
            value,
            keys,
            # by labels; `marked` does it without them for the label-free rule
            self.rule is not Rule.LABEL_FREE and any(row["collapsed"] for row in rows),
            "" if value is not None else "the predictions are not finite: the model diverged",
            tuple(row["predicted_classes"] or 1.0 for row in rows),
        )


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The highest score; the earlier of equals, so the suite's own setting needs to be beaten."""
    scored = [t for t in trials if t.score is not None]
    return max(scored, key=lambda t: (t.score, -t.number)) if scored else None


def marked(trials: Sequence[Trial], rule: Rule) -> tuple[Trial, ...]:
    """Collapse without labels: in some domain, fewer than 0.3 of the classes another trial has."""
    if rule is not Rule.LABEL_FREE:
        return tuple(trials)
    known = [t.predicted_classes for t in trials if not t.failed]
    most = [max(column) for column in zip(*known, strict=True)]
    return tuple(
        (
            replace(
                t,
                collapsed=any(e < 0.3 * m for e, m in zip(t.predicted_classes, most, strict=True)),
            )
            if not t.failed
            else t
        )
        for t in trials
    )
