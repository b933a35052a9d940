"""The service on Ray Serve: an ingress that speaks HTTP, and shards that hold the streams.

A shard is a deployment with one replica, so a stream lives in one process. Serve starts that
process again when it dies, and the streams go on from their checkpoints. What decodes images that
somebody sent is another process, the ingress: a file that crashes it takes no stream with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import BusyError, MissingExtraError
from ..memory import keep_memory
from ..models.preprocessing import Decoding
from .host import Answer
from .settings import Settings
from .shard import Image, Shard

try:
    import ray
    from ray import serve
    from ray.exceptions import RayError, RayTaskError, TaskCancelledError
    from ray.serve.exceptions import RayServeException
except ModuleNotFoundError as error:
    raise MissingExtraError("ray[serve]", "serve", "the service") from error

REPEATS = 3  # of a request whose replica died; a request that kills replicas must not go on
PAUSE = 0.2  # seconds


@serve.deployment(
    max_ongoing_requests=1000,  # batches are made of requests that wait together
    health_check_period_s=1,  # how soon a dead replica is noticed
    graceful_shutdown_wait_loop_s=0.2,
    graceful_shutdown_timeout_s=120,  # checkpoints of all streams
)
class Streams:
    """The only replica of a shard."""

    async def __init__(self, settings: Settings, number: int) -> None:
        await _until_alone()
        keep_memory()
        self.shard = Shard(settings, number)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.shard, name)

    async def __del__(self) -> None:
        """Serve waits for this when it stops a replica."""
        if "shard" in vars(self):
            await self.shard.close()
