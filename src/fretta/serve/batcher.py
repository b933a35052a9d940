"""Requests to batches: a batch of a stream goes when it is full, or when it has waited enough."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from ..errors import BusyError


@dataclass
class Waiting:
    """An image that waits for its batch."""

    image: Any
    id: str
    again: bool  # sent before: it may have been answered already
    answer: asyncio.Future[Any]
    since: float = field(default_factory=perf_counter)


class Batcher:
    """Gathers the images of every stream, in their order. Lives in one event loop.

    run         (stream, items) -> an answer per item; called in `pool`, for a stream one batch
                after the other
    limit       images that may wait in all streams together
    observe     gets the seconds that an image took from its arrival to its answer

    An error of `run` is the answer of every image in that batch, and of no other. An image whose
    client is gone before its batch began is left out: nothing learns from it.
    """

    def __init__(
        self,
        run: Callable[[str, list[Waiting]], Sequence[Any]],
        pool: Executor,
        *,
        batch_size: int,
        wait: float,
        limit: int,
        observe: Callable[[str, float], None] = lambda stream, seconds: None,
    ) -> None:
        self.run, self.pool, self.observe = run, pool, observe
        self.batch_size, self.wait, self.limit = batch_size, wait, limit
        self.waiting = 0
        self._queues: dict[str, deque[Waiting]] = {}
        self._full: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def predict(
        self, name: str, images: Sequence[Any], ids: Sequence[str], again: bool = False
    ) -> list[Any]:
        """The answers to these images, in their order."""
        if self.waiting + len(images) > self.limit:
            raise BusyError(
                f"{self.waiting:,} images wait already and {self.limit:,} may; try again later"
            )
        loop = asyncio.get_running_loop()
        items = [
            Waiting(image, key, again, loop.create_future())
            for image, key in zip(images, ids, strict=True)
        ]
        if not items:
            return []
        queue = self._queues.setdefault(name, deque())
        full = self._full.setdefault(name, asyncio.Event())
        queue.extend(items)
        self.waiting += len(items)
        if len(queue) >= self.batch_size:
            full.set()
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._serve(name, queue, full))
        try:
            return await asyncio.gather(*(item.answer for item in items))
        finally:  # also when the client is gone
            for item in items:
                item.answer.cancel()

    async def _serve(self, name: str, queue: deque[Waiting], full: asyncio.Event) -> None:
        """Until nothing waits any more."""
        try:
            while queue:
                await self._gather(queue, full)
                batch: list[Waiting] = []
                while queue and len(batch) < self.batch_size:
                    item = queue.popleft()
                    if item.answer.done():  # nobody waits for it
                        self.waiting -= 1
                    else:
                        batch.append(item)
                if batch:
                    await self._answer(name, batch)
        finally:
            del self._tasks[name], self._queues[name], self._full[name]

    async def _gather(self, queue: deque[Waiting], full: asyncio.Event) -> None:
        left = self.wait - (perf_counter() - queue[0].since)
        if len(queue) < self.batch_size and left > 0:
            full.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(full.wait(), left)

    async def _answer(self, name: str, batch: list[Waiting]) -> None:
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.run_in_executor(self.pool, self.run, name, batch)
        except Exception as error:  # noqa: BLE001  whatever it is, those who wait must know
            for item in batch:
                if not item.answer.done():
                    item.answer.set_exception(error)
            return
        finally:
            self.waiting -= len(batch)
        now = perf_counter()
        for item, answer in zip(batch, answers, strict=True):
            self.observe(name, now - item.since)
            if not item.answer.done():
                item.answer.set_result(answer)

    async def drain(self) -> None:
        """Wait until all that came is answered."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))
