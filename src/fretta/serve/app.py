"""The HTTP side of a service: a FastAPI app in front of shards. It needs no Ray.

app = make_app([Shard(settings)], settings)      # for uvicorn, or a test
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .. import __version__
from ..errors import (
    BusyError,
    CheckpointError,
    FrettaError,
    InputError,
    MissingExtraError,
    StoreError,
    UnknownStreamError,
)
from ..models.preprocessing import Decoding
from .images import decode_bytes
from .metrics import exposition
from .protect import Protected
from .requests import OPENAPI, read_predict
from .settings import Settings, check_name, shard_of
from .shard import CONTROLS, ShardLike

try:
    from fastapi import FastAPI, Request, Response
    from fastapi.responses import HTMLResponse
    from pydantic import BaseModel, ConfigDict
except ModuleNotFoundError as error:
    raise MissingExtraError("fastapi", "serve", "the service") from error

DECODERS = 2  # threads; a decoded image takes memory
HEALTHY_WITHIN = 5.0  # seconds
STATUS: dict[type[FrettaError], int] = {
    InputError: 400,
    UnknownStreamError: 404,
    CheckpointError: 409,  # a reset clears it
    BusyError: 503,
    StoreError: 503,
}
POLICY = "default-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'"


class Labels(BaseModel):
    """Labels that came late: {id of an answer: name or number of its class}."""

    model_config = ConfigDict(extra="forbid")
    stream: str
    labels: dict[str, str | int]


class Json(Response):
    """Numbers keep their bits; what is not finite becomes null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(_finite(content), allow_nan=False, ensure_ascii=False).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list) else value


def make_app(shards: Sequence[ShardLike], settings: Settings) -> Protected:
    """An ASGI app; `shards` hold the streams, a stream always in the same one."""
    app = FastAPI(
        title="fretta", version=__version__, description="A classifier that adapts, as a service."
    )
    decoders = ThreadPoolExecutor(DECODERS, "fretta-decode")
    known: list[Decoding] = []

    def shard(name: str) -> ShardLike:
        return shards[shard_of(check_name(name), len(shards))]

    async def decoding() -> Decoding:
        if not known:
            known.append(await shards[0].decoding())
        return known[0]

    @app.exception_handler(FrettaError)
    async def refuse(request: Request, error: FrettaError) -> Response:
        status = next((s for kind, s in STATUS.items() if isinstance(error, kind)), 500)
        headers = {"retry-after": "1"} if status == 503 else None
        return Json({"detail": str(error)}, status, headers)

    @app.post("/predict", openapi_extra=OPENAPI)
    async def predict(request: Request) -> Response:
        """Predict images of a stream, and learn from them."""
        given = await read_predict(request, settings)
        how, loop = await decoding(), asyncio.get_running_loop()
        pixels = [
            await loop.run_in_executor(
                decoders, decode_bytes, data, how, settings.max_pixels, f"image {number}"
            )
            for number, data in enumerate(given.images)
        ]
        answers = await shard(given.stream).predict(given.stream, pixels, given.ids, given.retry)
        rows = [answer.to_json() for answer in answers]
        health = [row.pop("health") for row in rows][-1]
        return Json({"stream": given.stream, "answers": rows, "health": health})

    @app.get("/streams")
    async def streams() -> Response:
        """A row for every stream, by name."""
        rows = await asyncio.gather(*(each.overview() for each in shards))
        return Json(sorted((row for some in rows for row in some), key=lambda row: row["name"]))

    @app.get("/streams/{name}")
    async def stream(name: str) -> Response:
        """One stream: its health over time, and whether adapting helps."""
        return Json(await shard(name).detail(name))

    def add_control(verb: str, text: str) -> None:
        @app.post(f"/streams/{{name}}/{verb}", summary=text, name=verb)
        async def control(name: str) -> Response:
            return Json(await shard(name).control(name, verb))

    texts = ("Back to the source model", "Predict without learning", "Learn again")
    for verb, text in zip(CONTROLS, texts, strict=True):
        add_control(verb, text)

    @app.post("/feedback")
    async def feedback(given: Labels) -> Response:
        """Labels that came late; they measure whether adapting helps and never reach a method."""
        return Json(await shard(given.stream).feedback(given.stream, given.labels))

    @app.get("/healthz")
    async def healthz() -> Response:
        """200 if every shard answers."""
        try:
            async with asyncio.timeout(HEALTHY_WITHIN):
                await asyncio.gather(*(each.decoding() for each in shards))
        except (TimeoutError, FrettaError):
            return Json({"status": "a shard does not answer"}, 503, {"retry-after": "1"})
        return Json({"status": "ok"})

    @app.get("/metrics")
    async def metrics() -> Response:
        """For Prometheus."""
        page, kind = exposition(await asyncio.gather(*(each.metrics() for each in shards)))
        return Response(page, media_type=kind)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def page() -> Response:
        from .dashboard import page as dashboard

        return HTMLResponse(dashboard(), headers={"content-security-policy": POLICY})

    return Protected(app, settings)
