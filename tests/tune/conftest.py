"""A small suite on the digits, and runs whose numbers are made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fretta.api import build_method
from fretta.data import EXTRA_CORRUPTIONS
from fretta.experiment.execute import Done, make_plan
from fretta.experiment.records import Job, Record
from fretta.experiment.store import Store
from fretta.experiment.suite import Suite, parse_suite

TEXT = """
[protocol]
batch_size = 32
limit = 32
domains = ["gaussian_noise", "fog"]

[[cases]]
name = "digits"
data = { name = "digits" }
model = { source = "digits" }

[[methods]]
name = "tent"

[[methods]]
name = "g-fret"
lr = 1e-3
"""

Numbers = Callable[[dict[str, Any], str], dict[str, Any] | None]


@pytest.fixture
def text() -> str:
    return TEXT


@pytest.fixture
def suite() -> Suite:
    return parse_suite(TEXT, "small")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


class Fake:
    """Stands in for run_jobs: numbers(settings, domain) is the row, or None for a failed run."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.ran: list[dict[str, Any]] = []

    def __call__(self, jobs: list[Job], store: Store, **execution: Any) -> Done:
        plan = make_plan(jobs, store)
        done = Done(skipped=len(plan.there))
        for job in plan.todo:
            done.records.append(self._record(job))
            store.put(done.records[-1])
        return done

    def _record(self, job: Job) -> Record:
        settings = build_method(job.run.method, job.run.hyperparameters).hyperparameters()
        self.ran.append(job.run.hyperparameters)
        extra = job.run.data.get("corruption") == "extra"
        domains = EXTRA_CORRUPTIONS if extra else job.run.order_options["domains"]
        record = Record(asdict(job.run), job.run.key, "done", dict(job.tags))
        for domain in domains:
            numbers = self.numbers(settings, domain)
            if numbers is None:
                record.status, record.rows, record.error = "failed", [], "Traceback\nOops: no"
                return record
            usual = {"accuracy": 0.5, "entropy": 0.5, "predicted_classes": 8.0}
            record.rows.append({"domain": domain, "collapsed": False, **usual, **numbers})
        accuracies = [row["accuracy"] for row in record.rows]
        record.overall = {"mean_over_domains": sum(accuracies) / len(accuracies)}
        return record


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[[Numbers], Fake]:
    def install(numbers: Numbers) -> Fake:
        made = Fake(numbers)
        monkeypatch.setattr("fretta.experiment.tune.trials.run_jobs", made)
        return made

    return install
