"""Limits in front of the app: token, origin, bytes and time."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from .settings import Settings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

OPEN = ("/", "/healthz")  # the dashboard, which asks for the token itself; for load balancers
AT_ONCE = 8  # bodies of the largest size in memory
HERE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Refusal:
    """How a request ends that the app does not answer."""

    status: int
    reason: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Protected:
    """An ASGI app behind a token, a limit of bytes that holds while they arrive, and a timeout.

    Web pages of others cannot use a browser to get in: an Origin that is not ours is refused, and
    without a token a service on 127.0.0.1 answers under local names only (DNS rebinding).
    """

    def __init__(self, app: App, settings: Settings) -> None:
        self.app, self.token = app, settings.bearer
        self.max_body, self.timeout = settings.max_body, settings.timeout
        self.held = 0  # bytes of all requests that are not answered yet
        self.local = settings.host in HERE and self.token is None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        refusal = self._check(scope)
        started = complete = False
        read = 0  # bytes

        async def counted() -> Message:
            nonlocal refusal, read, complete
            message = await receive()
            some = len(message.get("body", b""))
            read, self.held = read + some, self.held + some
            complete = not message.get("more_body", False)
            if read > self.max_body:
                refusal = self._too_large("more")
            elif self.held > AT_ONCE * self.max_body:
                reason = "too many large requests at once; try again later"
                refusal = Refusal(503, reason, {"retry-after": "1"})
            if refusal is not None:
                raise ValueError(refusal.reason)
            return message

        async def watched(message: Message) -> None:
            nonlocal started
            if refusal is None:  # else the app speaks of a body that it did not get
                started = True
                await send(message)

        try:
            if refusal is None:
                async with asyncio.timeout(self.timeout):
                    await self.app(scope, counted, watched)
        except TimeoutError:
            refusal = Refusal(408, f"the body did not arrive in {self.timeout:g} s")
            if complete:
                reason = f"no answer within {self.timeout:g} s"
                refusal = Refusal(503, reason, {"retry-after": "1"})
        except Exception:  # of `counted`, in whatever the app wrapped it
            if refusal is None:
                raise
        finally:
            self.held -= read
        if refusal is not None and not started:
            await _respond(send, refusal)

    def _check(self, scope: Message) -> Refusal | None:
        """By the headers alone."""
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            name = urlsplit(f"//{host}").hostname
            foreign = origin is not None and urlsplit(origin).netloc != host
        except ValueError:
            return Refusal(400, f"host {host[:100]!r} cannot be read")
        if self.local and name not in HERE:
            reason = f"host {host[:100]!r} is not this machine; use 127.0.0.1, or set a token"
            return Refusal(403, reason)
        if foreign:
            return Refusal(403, f"requests of pages of {str(origin)[:100]!r} are not answered")
        if scope["path"] not in OPEN and not self._knows_token(headers.get("authorization", "")):
            return Refusal(
                401,
                "this service asks for a token; send it as Authorization: Bearer TOKEN",
                {"www-authenticate": "Bearer"},
            )
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            return Refusal(400, f"content-length {length[:40]!r} is no number")
        return self._too_large(f"{length[:20]} bytes, more") if self._long(length) else None

    def _long(self, length: str) -> bool:
        return len(length) > 18 or int(length) > self.max_body

    def _knows_token(self, authorization: str) -> bool:
        """In constant time: how long it takes must not tell how much was right."""
        if self.token is None:
            return True
        scheme, _, given = authorization.partition(" ")
        same = hmac.compare_digest(given.strip().encode(), self.token.encode())
        return same and scheme.lower() == "bearer"

    def _too_large(self, seen: str) -> Refusal:
        return Refusal(
            413, f"the body has {seen} than the limit of {self.max_body:,} bytes (max_body)"
        )


async def _respond(send: Send, refusal: Refusal) -> None:
    body = json.dumps({"detail": refusal.reason}).encode()
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",  # what is left of the request is not read
        **refusal.headers,
    }
    raw = [(k.encode(), v.encode("latin-1", "replace")) for k, v in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
