"""Progress: a bar on a terminal, a line every tenth elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from .app import console, say

Advance = Callable[[int, int], None]  # (done, total)


@contextmanager
def bar(label: str) -> Iterator[Advance]:
    """Yields a function that takes (done, total), as often as one likes."""
    if not console.is_terminal:
        tenth = -1

        def tell(done: int, total: int) -> None:
            nonlocal tenth
            now = 10 * done // max(total, 1)
            if now > tenth:
                tenth = now
                say(f"{label}: {done:,} of {total:,}")

        yield tell
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=console) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
