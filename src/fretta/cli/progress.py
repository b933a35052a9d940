"""Progress: bars and live tables on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from .app import console, make_table, print_line

LATEST = 24  # rows of the table of runs


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Yields a function of (done, total); a line for every tenth where there is no terminal."""
    if not console.is_terminal:
        printed = -1

        def advance(done: int, total: int) -> None:
            nonlocal printed
            tenths = 10 * done // max(total, 1)
            if tenths > printed:
                printed = tenths
                print_line(f"{label}: {done:,} of {total:,}")

        yield advance
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=console) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def show_runs(jobs: list[Any]) -> Iterator[Callable[[Any], None]]:
    """Yields the function that executors call with every event."""
    runs = RunProgress(jobs)
    if not console.is_terminal:
        yield runs.print_event
        return
    with Live(runs.table(), console=console, refresh_per_second=4) as live:

        def show(event: Any) -> None:
            runs.update(event)
            live.update(runs.table())

        yield show


class RunProgress:
    """The state of every run; runs that the store has count as done."""

    def __init__(self, jobs: list[Any]) -> None:
        self.total = len({job.run.key for job in jobs})
        self.rows: dict[str, list[str]] = {}  # case, method, seed, state; the latest last
        self.found = self.ended = 0
        self.begin = time.monotonic()

    def update(self, event: Any) -> None:
        if event.kind == "there":
            self.found += 1
            return
        key, tags = event.job.run.key, event.job.tags
        if event.kind == "began":
            state = "..."
        elif event.kind == "batch":
            state = f"{event.done}/{event.total} batches"
        else:
            self.ended += 1
            self.rows.pop(key, None)
            done = event.record is not None and event.record.status == "done"
            state = f"{100 * event.record.overall['mean_over_domains']:.2f} %" if done else "failed"
        names = [tags.get("case", ""), tags.get("label", ""), f"seed {event.job.run.seed}"]
        self.rows[key] = [*names, state]

    @property
    def done(self) -> int:
        return self.found + self.ended

    def table(self) -> Table:
        found = f" ({self.found} were there already)" if self.found else ""
        columns = ["case", "method", "seed", f"{self.done} of {self.total} runs{found}"]
        return make_table(columns, list(self.rows.values())[-LATEST:])

    def print_event(self, event: Any) -> None:
        if event.kind in ("there", "ended"):
            self.update(event)
        if event.kind == "ended":
            if self.found and self.ended == 1:
                print_line(f"{self.found} of {self.total} runs were there already")
            case, label, seed, state = self.rows[event.job.run.key]
            seconds = time.monotonic() - self.begin
            print_line(
                f"[{self.done}/{self.total}] {case} {label} {seed}: {state} ({seconds:.0f} s)"
            )
