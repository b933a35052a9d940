"""The service on Ray Serve: an ingress that speaks HTTP, and shards that hold the streams.

A shard is a deployment with one replica, so a stream lives in one process. Serve starts that
process again when it dies, and the streams go on from their checkpoints. Images that somebody
sent are decoded in another process, the ingress: a file that crashes it takes no stream with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import BusyError, MissingExtraError
from ..memory import keep_memory
from ..models.preprocessing import Decoding
from .app import make_app
from .host import Answer
from .protect import Protected
from .settings import Settings
from .shard import Image, Shard

try:
    import ray
    from ray import serve
    from ray.exceptions import RayError, RayTaskError, TaskCancelledError
    from ray.serve.exceptions import RayServeException
except ModuleNotFoundError as error:
    raise MissingExtraError("ray[serve]", "serve", "the service") from error

REPEATS = 3  # of a request whose replica died: one that kills replicas must end
PAUSE = 0.2  # seconds


def build(args: Mapping[str, Any]) -> Any:
    """The application, from the `args` of a Serve YAML."""
    return make(Settings.from_dict(args))


def make(settings: Settings) -> Any:
    """The application with these settings."""
    shared = {
        "max_ongoing_requests": 1000,  # those that wait together make a batch
        "health_check_period_s": 1,  # how soon a dead replica is noticed
        "graceful_shutdown_wait_loop_s": 0.2,
    }
    cuda = (settings.device or "").startswith("cuda")
    streams = serve.deployment(
        **shared,
        graceful_shutdown_timeout_s=120,  # for the checkpoints of all streams
        ray_actor_options={"num_cpus": 1, **({"num_gpus": 1} if cuda else {})},
    )(StreamsReplica)
    ingress = serve.deployment(
        **shared,
        graceful_shutdown_timeout_s=settings.timeout + 5,
        ray_actor_options={"num_cpus": 0},
    )(serve.ingress()(Ingress))
    shards = [
        streams.options(name=f"streams-{n}").bind(settings, n) for n in range(settings.shards)
    ]
    return ingress.bind(settings, shards)


class StreamsReplica(Shard):
    """The one replica of a shard."""

    async def __init__(self, settings: Settings, number: int) -> None:  # type: ignore[misc]
        await until_alone()
        keep_memory()
        super().__init__(settings, number)

    async def __del__(self) -> None:
        """Serve waits for this when it stops a replica."""
        if "batcher" in vars(self):
            await self.close()


async def until_alone() -> None:
    """Wait until the replica that this one replaces is gone.

    Serve starts the new one while the old one still answers what it has, and only then does that
    write its last checkpoints.
    """
    me = serve.get_replica_context().replica_id
    name = me.to_full_id_str()
    others = name.removesuffix(me.unique_id)
    while True:
        found = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
        if not any(other.startswith(others) and other != name for other in found):
            return
        await asyncio.sleep(PAUSE)


class Ingress:
    """Speaks HTTP; holds no state, so there may be many."""

    def __init__(self, settings: Settings, shards: Sequence[Any]) -> None:
        self.settings, self.shards = settings, [RemoteShard(handle) for handle in shards]

    def __serve_build_asgi_app__(self) -> Protected:
        return make_app(self.shards, self.settings)


class RemoteShard:
    """A shard in another process. A request whose replica dies is sent again, a few times."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    async def decoding(self) -> Decoding:
        found: Decoding = await self._call("decoding")
        return found

    async def predict(
        self, name: str, images: Sequence[Image], ids: Sequence[str], again: bool = False
    ) -> list[Answer]:
        answers: list[Answer] = await self._call("predict", name, images, ids, again=again)
        return answers

    async def overview(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = await self._call("overview")
        return rows

    async def detail(self, name: str) -> dict[str, Any]:
        return await self._row("detail", name)

    async def control(self, name: str, verb: str) -> dict[str, Any]:
        return await self._row("control", name, verb)

    async def feedback(self, name: str, labels: Mapping[str, str | int]) -> dict[str, Any]:
        return await self._row("feedback", name, labels)

    async def metrics(self) -> dict[str, Any]:
        return await self._row("metrics")

    async def _row(self, method: str, *arguments: Any) -> dict[str, Any]:
        row: dict[str, Any] = await self._call(method, *arguments)
        return row

    async def _call(self, method: str, *arguments: Any, **named: Any) -> Any:
        for _ in range(1 + REPEATS):
            try:
                return await getattr(self.handle, method).remote(*arguments, **named)
            except RayTaskError as error:  # the shard itself refused
                raise getattr(error, "cause", error) from None
            except TaskCancelledError:
                raise
            except (RayError, RayServeException):
                if "again" in named:
                    named["again"] = True
                await asyncio.sleep(PAUSE)
        raise BusyError("the process that holds this stream died and starts again; try again later")
