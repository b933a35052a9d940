"""`fretta adapt --ray`: a line for every stream that ends, and a table of all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from .app import print_line, print_table
from .messages import name_options

if TYPE_CHECKING:
    from ..deploy import AdaptOptions
    from ..deploy.on_ray import StreamEnd

EVERY = 10.0  # seconds between lines about streams that go on


def adapt_streams(options: AdaptOptions, data: Sequence[str], ray: str, **how: Any) -> None:
    """Run them all and print the table; exit code 1 if a stream failed."""
    from ..deploy.on_ray import adapt_on_ray

    lines = _Lines(len(data))
    ends = adapt_on_ray(options, data, ray, on_progress=lines.progress, on_end=lines.end, **how)
    print_line("")
    columns = ["stream", "images", "unreadable", "changed", "accuracy before", "after", "adapting"]
    print_table(columns, [_row(end) for end in ends])
    failed = sum(bool(end.error) for end in ends)
    if failed:
        print_line(
            f"\n{failed} of {len(ends)} streams failed; what they did is kept, and the same command"
            " with --resume continues them"
        )
        raise typer.Exit(1)
    print_line(f"\nwrote {len(ends)} folders in {options.out}; summary.html in each is its page")


class _Lines:
    """What is printed while streams run."""

    def __init__(self, streams: int) -> None:
        self.streams, self.ended = streams, 0
        self.running: dict[str, int] = {}
        self.notes: set[str] = set()
        self.printed = time.monotonic()

    def progress(self, name: str, done: int, _: int) -> None:
        self.running[name] = done
        if time.monotonic() - self.printed >= EVERY:
            self.printed = time.monotonic()
            facts = ", ".join(f"{n} {done:,}" for n, done in sorted(self.running.items()))
            print_line(f"images so far: {facts}")

    def end(self, end: StreamEnd) -> None:
        self.ended += 1
        self.running.pop(end.name, None)
        images = f"{end.result.get('images', 0):,} images"
        state = f"failed: {end.error}" if end.error else images + (", as before" * end.there)
        print_line(f"[{self.ended}/{self.streams}] {end.name}: {name_options(state, ['adapt'])}")
        for note in end.notes:  # most are the same for all streams
            if note not in self.notes:
                self.notes.add(note)
                print_line(f"note: {name_options(note, ['adapt'])}")


def _row(end: StreamEnd) -> list[str]:
    from ..deploy.page import percent

    if end.error:
        return [end.name, "failed", *[""] * 5]
    result = end.result
    counts = [f"{result[name]:,}" for name in ("images", "unreadable")]
    shares = [percent(result[name]) for name in ("changed", "source_accuracy", "accuracy")]
    return [end.name, *counts, *shares, result["verdict"]]
