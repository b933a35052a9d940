"""One process of a service: its streams behind asynchronous methods. Knows neither Ray nor HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..models.preprocessing import Decoding
from .batcher import Batcher, Waiting
from .host import Answer, StreamHost
from .metrics import Latencies
from .settings import Settings

Result = TypeVar("Result")
Image = NDArray[np.uint8]
CONTROLS = ("reset", "freeze", "resume")
BATCHES_AHEAD = 128  # that may wait in a shard, before requests are turned away


class ShardLike(Protocol):
    """What the app needs of a shard: a `Shard`, or a handle to one in another process."""

    async def decoding(self) -> Decoding: ...
    async def predict(
        self, name: str, images: Sequence[Image], ids: Sequence[str], again: bool = False
    ) -> list[Answer]: ...
    async def overview(self) -> list[dict[str, Any]]: ...
    async def detail(self, name: str) -> dict[str, Any]: ...
    async def control(self, name: str, verb: str) -> dict[str, Any]: ...
    async def feedback(self, name: str, labels: Mapping[str, str | int]) -> dict[str, Any]: ...
    async def metrics(self) -> dict[str, Any]: ...


class Shard:
    """Streams of a `StreamHost`. One thread computes, so the event loop always answers."""

    def __init__(self, settings: Settings, number: int = 0, host: StreamHost | None = None) -> None:
        self.host = host or StreamHost(settings, number)
        self.latencies = Latencies()
        self.pool = ThreadPoolExecutor(1, "fretta-batches")
        self.batcher = Batcher(
            self._batch,
            self.pool,
            batch_size=settings.batch_size,
            wait=settings.wait,
            limit=BATCHES_AHEAD * settings.batch_size + settings.max_images,
            observe=self.latencies.observe,
        )

    async def decoding(self) -> Decoding:
        return self.host.decoding

    async def predict(
        self, name: str, images: Sequence[Image], ids: Sequence[str], again: bool = False
    ) -> list[Answer]:
        """Answers in the order of the images. `again`: what is remembered is not learned twice."""
        for image in images:
            self.host.check_image(image)
        return await self.batcher.predict(name, images, ids, again)

    def _batch(self, name: str, items: list[Waiting]) -> list[Answer]:
        repeated = [item for item in items if item.again]
        known = self.host.recall(name, *_split(repeated)) if repeated else {}
        # ids need not be unique among requests: what is new goes by position
        old = [item.again and item.id in known for item in items]
        new = [item for item, is_old in zip(items, old, strict=True) if not is_old]
        fresh = iter(self.host.predict(name, *_split(new)) if new else [])
        pairs = zip(items, old, strict=True)
        return [known[item.id] if is_old else next(fresh) for item, is_old in pairs]

    async def overview(self) -> list[dict[str, Any]]:
        return self.host.overview()

    async def detail(self, name: str) -> dict[str, Any]:
        return await self._call(self.host.detail, name)

    async def control(self, name: str, verb: str) -> dict[str, Any]:
        act: Callable[[str], dict[str, Any]] = getattr(self.host, verb)
        return await self._call(act, name)

    async def feedback(self, name: str, labels: Mapping[str, str | int]) -> dict[str, Any]:
        return await self._call(self.host.feedback, name, labels)

    async def metrics(self) -> dict[str, Any]:
        found = self.host.metrics()
        names = {row["name"] for row in found["streams"]}
        return {**found, "waiting": self.batcher.waiting, "latencies": self.latencies.of(names)}

    async def close(self) -> None:
        """Answer what waits, then keep everything."""
        await self.batcher.drain()
        await self._call(self.host.close)
        self.pool.shutdown()

    async def _call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """In the thread that computes: between two batches."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.pool, function, *arguments)


def _split(items: list[Waiting]) -> tuple[list[Any], list[str]]:
    return [item.image for item in items], [item.id for item in items]
