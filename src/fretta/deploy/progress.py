"""How far a run is and how long the rest takes, with the work after the last batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

ADAPTING, STATISTICS, CHECK = "adapting", "statistics for the weights", "checking the weights"


class Progress:
    """Phases of a run: how many images of the present one are done, and the seconds left in all.

    ending      the phases after the last batch, and how many images each of them reads again
    on_advance  called whenever something is done
    """

    def __init__(
        self,
        ending: Mapping[str, int],
        on_advance: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        self.ending, self.on_advance = dict(ending), on_advance
        self.reading = self.forward = 0.0  # seconds: waiting for files, in plain forwards
        self.adapted = self.forwarded = 0  # images these seconds are for
        self.begin(ADAPTING, None)

    def begin(self, phase: str, total: int | None, done: int = 0) -> None:
        """A phase starts: `total` images, if that is known; some may have been done before."""
        self.ending.pop(phase, None)
        self.phase, self.total, self.done, self.first = phase, total, done, done
        self.since = time.monotonic()

    def advance(self, images: int) -> None:
        self.done += images
        self.adapted += images if self.phase == ADAPTING else 0
        self.on_advance(self)

    @contextmanager
    def timing_forward(self, images: int) -> Iterator[None]:
        begin = time.monotonic()
        yield
        self.forward += time.monotonic() - begin
        self.forwarded += images

    @property
    def rate(self) -> float:
        """Images per second in this phase."""
        return (self.done - self.first) / max(time.monotonic() - self.since, 1e-9)

    @property
    def left(self) -> float | None:
        """Seconds; None where the number of images is not known."""
        if self.total is None or not self.rate:
            return None
        if self.forwarded and self.adapted:  # at the end an image is read and seen once
            each = self.forward / self.forwarded + self.reading / self.adapted
        else:
            each = 1 / self.rate
        return (self.total - self.done) / self.rate + sum(self.ending.values()) * each
