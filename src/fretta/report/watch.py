"""The page, served on this machine while runs progress: read-only, and nobody else may read it.

    GET /          the page; its ETag is the version of the store
    GET /version   {"version", "records", "running", "store"}: what the page asks for every second

The server listens on 127.0.0.1 alone, answers only to that name (a page of another site cannot
reach it by pointing its own name here), opens no file that a request names and changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ..errors import ConfigError, FrettaError
from ..experiment.store import Store
from .build import build
from .page import policy
from .write import encoded

HOST = "127.0.0.1"


class Watched:
    """A store, and the page of its latest version."""

    def __init__(self, store: Store, suite: str | None = None, paper: bool = True) -> None:
        self.store, self.suite, self.paper = store, suite, paper
        self._lock = threading.Lock()
        self._page: tuple[str, bytes] | None = None
        self._rest_until = 0.0

    def listing(self) -> list[tuple[str, str, int, int]]:
        """Folder, name, size and time of all files that the page depends on."""
        if self.store.local is None:
            return [("records", key, 0, 0) for key in sorted(self.store.keys())]
        found = []
        for folder in ("records", "analyses", "checkpoints"):
            try:
                entries = list(os.scandir(self.store.local / folder))
            except OSError:
                continue
            for entry in entries:
                try:
                    facts = entry.stat()
                except OSError:  # gone meanwhile
                    continue
                if not entry.name.startswith("."):
                    # Checkpoints are rewritten all the time: only that they are there matters.
                    still = folder == "checkpoints"
                    stamp = (0, 0) if still else (facts.st_size, facts.st_mtime_ns)
                    found.append((folder, entry.name, *stamp))
        return sorted(found)

    @staticmethod
    def version_of(listing: list[tuple[str, str, int, int]]) -> str:
        return hashlib.sha256(repr(listing).encode("utf-8", "replace")).hexdigest()[:16]

    def status(self) -> dict[str, Any]:
        listing = self.listing()
        return {
            "version": self.version_of(listing),
            "records": sum(folder == "records" for folder, *_ in listing),
            "running": sum(folder == "checkpoints" for folder, *_ in listing),
            "store": self.store.where,
        }

    def page(self) -> tuple[str, bytes]:
        """Version and page. Made anew when the store changed, but never most of the time: after
        a slow one the old page stays for three times as long as it took."""
        with self._lock:
            listing = self.listing()
            version = self.version_of(listing)
            if self._page is not None:
                fresh = self._page[0] == version
                if fresh or time.monotonic() < self._rest_until:
                    return self._page
            begin = time.monotonic()
            running = [
                name.removesuffix(".pt") for folder, name, *_ in listing if folder == "checkpoints"
            ]
            text = build(self.store, self.suite).page(self.paper, live=version, running=running)
            self._page = (version, encoded(text))
            self._rest_until = time.monotonic() + 3 * (time.monotonic() - begin)
            return self._page


class _Handler(BaseHTTPRequestHandler):
    watched: Watched
    names: frozenset[str]
    protocol_version = "HTTP/1.1"
    timeout = 30  # seconds that a silent connection is kept
    server_version, sys_version = "fretta", ""

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _refuse(self) -> None:
        # What may follow the head is not read, so the connection cannot be used again.
        self.close_connection = True
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, b"read-only", "text/plain", Allow="GET, HEAD")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _refuse  # noqa: N815

    def _answer(self, body: bool) -> None:
        if self.headers.get("Host", "").lower() not in self.names:
            self._send(HTTPStatus.FORBIDDEN, b"this name is not served", "text/plain", body)
        elif self.path not in ("/", "/version"):
            self._send(HTTPStatus.NOT_FOUND, b"nothing here", "text/plain", body)
        else:
            try:
                self._serve(body)
            except FrettaError as error:  # a store that cannot be read now; it may be later
                text = encoded(str(error))
                self._send(HTTPStatus.INTERNAL_SERVER_ERROR, text, "text/plain", body)

    def _serve(self, body: bool) -> None:
        if self.path == "/version":
            content = json.dumps(self.watched.status()).encode()
            self._send(HTTPStatus.OK, content, "application/json", body)
        else:
            version, page = self.watched.page()
            tag = f'"{version}"'
            if self.headers.get("If-None-Match") == tag:
                self._send(HTTPStatus.NOT_MODIFIED, b"", "", False, ETag=tag)
            else:
                self._send(HTTPStatus.OK, page, "text/html; charset=utf-8", body, ETag=tag)

    def _send(
        self, status: HTTPStatus, content: bytes, kind: str, body: bool = True, **more: str
    ) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(content)) if status != HTTPStatus.NOT_MODIFIED else "",
            "Cache-Control": "no-cache",
            "Content-Security-Policy": policy(live=True) + "; frame-ancestors 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            **more,
        }
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Silence: the terminal belongs to the user."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Two servers on one port would take turns: better say that it is in use.
    allow_reuse_port = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that went away is no event; anything else is told as usual."""
        import sys

        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def serve(watched: Watched, port: int = 0) -> ThreadingHTTPServer:
    """A server that is ready to `serve_forever`; port 0 takes a free one."""
    handler = type("Handler", (_Handler,), {"watched": watched})
    try:
        server = _Server((HOST, port), handler)
    except (OSError, OverflowError) as error:
        reason = str(getattr(error, "strerror", None) or error).rstrip(".")
        raise ConfigError(
            f"cannot serve on port={port}: {reason}; choose another one, or port=0 for a free one"
        ) from error
    number = server.server_address[1]
    names = frozenset(f"{name}:{number}" for name in (HOST, "localhost"))
    handler.names = names  # type: ignore[attr-defined]
    return server
