"""Runs as they progress: a live table on a terminal, one line per run elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from .app import console, say, table

SHOWN = 24  # rows of the live table; longer suites show the running and the latest


@contextmanager
def watching(jobs: list[Any]) -> Iterator[Callable[[Any], None]]:
    """Yields what executors call with every event."""
    board = _Board(jobs)
    if not console.is_terminal:
        yield board.plain
        return
    with Live(board.render(), console=console, refresh_per_second=4) as live:

        def show(event: Any) -> None:
            board.note(event)
            live.update(board.render())

        yield show


class _Board:
    def __init__(self, jobs: list[Any]) -> None:
        self.total = len({job.run.key for job in jobs})
        self.rows: dict[str, list[str]] = {}
        self.there = self.ended = 0
        self.begin = time.monotonic()

    def note(self, event: Any) -> None:
        if event.kind == "there":
            self.there += 1
            return
        key, tags = event.job.run.key, event.job.tags
        name = [tags.get("case", ""), tags.get("label", ""), f"seed {event.job.run.seed}"]
        if event.kind == "began":
            state = "..."
        elif event.kind == "batch":
            state = f"{event.done}/{event.total} batches"
        else:
            self.ended += 1
            state = _verdict(event.record)
            self.rows.pop(key, None)  # to the end: the latest are shown
        self.rows[key] = [*name, state]

    def render(self) -> Table:
        there = f" ({self.there} were there already)" if self.there else ""
        shown = table("case", "method", "seed", f"{self.done} of {self.total} runs{there}")
        for row in list(self.rows.values())[-SHOWN:]:
            shown.add_row(*map(escape, row))
        return shown

    @property
    def done(self) -> int:
        return self.there + self.ended

    def plain(self, event: Any) -> None:
        if event.kind in ("there", "ended"):
            self.note(event)
        if event.kind == "ended":
            if self.there and self.ended == 1:
                say(f"{self.there} of {self.total} runs were there already")
            case, label, seed, state = self.rows[event.job.run.key]
            spent = time.monotonic() - self.begin
            say(f"[{self.done}/{self.total}] {case} {label} {seed}: {state} ({spent:.0f} s)")


def _verdict(record: Any) -> str:
    if record is None or record.status != "done":
        return "failed"
    return f"{100 * record.overall['mean_over_domains']:.2f} %"
