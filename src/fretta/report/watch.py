"""The page, served on this machine while runs progress and made anew when the store changes.

    GET /          the page
    GET /version   {"version", "records", "running", "store"}: what the page asks for every second

The server listens on 127.0.0.1 alone, answers only to that name (a page of another site cannot
reach it by pointing its own name here), opens no file that a request names and changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ..errors import ConfigError, FrettaError
from ..experiment.store import DETAILS, RECORDS, Store
from .page import policy
from .write import build, encoded

HOST = "127.0.0.1"


class Watched:
    """A store, and the page of its latest version."""

    def __init__(self, store: Store, suite: str | None = None, paper: bool = True) -> None:
        self.store, self.suite, self.paper = store, suite, paper
        self._lock = threading.Lock()
        self._page: tuple[str, bytes] = ("", b"")
        self._packed: tuple[Any, frozenset[str]] = (None, frozenset())
        self._rest_until = 0.0

    def _files(self) -> list[tuple[str, str, int]]:
        """Folder, name and time of all files that the page depends on."""
        if self.store.local is None:
            return [("records", key, 0) for key in sorted(self.store.keys())]
        found = []
        for path in self.store.local.glob("*/*"):
            folder = path.parent.name
            if folder in ("records", "analyses", "checkpoints") and not path.name.startswith("."):
                try:
                    stamp = path.stat().st_mtime_ns
                    if folder == "checkpoints":  # rewritten all the time: only if in flight
                        ended = self.store.local / "records" / f"{path.stem}.json"
                        stamp = int(not ended.exists() or ended.stat().st_mtime_ns < stamp)
                except OSError:  # gone meanwhile
                    continue
                found.append((folder, path.name, stamp))
        loose = {name for folder, name, _ in found if folder == "records"}
        more = self._packed_names() - loose
        return sorted([*found, *(("records", name, 0) for name in more), *self._packed[0]])

    def _packed_names(self) -> frozenset[str]:
        """Files that a packed store stands for; it is read again when it changed."""
        assert self.store.local is not None
        stamps = []
        for name in (RECORDS, DETAILS):
            with suppress(OSError):
                stamps.append(("", name, (self.store.local / name).stat().st_mtime_ns))
        if stamps != self._packed[0]:
            keys = Store(self.store.where).keys() if stamps else []
            self._packed = (stamps, frozenset(f"{key}.json" for key in keys))
        return self._packed[1]

    def status(self) -> dict[str, Any]:
        files = self._files()
        return {
            "version": hashlib.sha256(repr(files).encode("utf-8", "replace")).hexdigest()[:16],
            "records": sum(folder == "records" for folder, *_ in files),
            "running": [
                name.removesuffix(".pt")
                for folder, name, newest in files
                if folder == "checkpoints" and newest
            ],
            "store": self.store.where,
        }

    def page(self) -> bytes:
        """Made anew when the store changed, but never most of the time: after a slow one the old
        page stays for three times as long as it took."""
        with self._lock:
            now = self.status()
            begin = time.monotonic()
            if now["version"] != self._page[0] and begin >= self._rest_until:
                report = build(Store(self.store.where), self.suite)
                text = report.page(self.paper, live=now["version"], running=now["running"])
                self._page = (now["version"], encoded(text))
                end = time.monotonic()
                self._rest_until = end + 3 * (end - begin)
            return self._page[1]


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30  # seconds that a silent connection is kept
    server_version, sys_version = "fretta", ""

    def do_GET(self) -> None:
        if self.headers.get("Host", "").lower() not in self.server.names:
            self._send(HTTPStatus.FORBIDDEN, b"this name is not served")
        elif self.path not in ("/", "/version"):
            self._send(HTTPStatus.NOT_FOUND, b"nothing here")
        else:
            try:
                if self.path == "/":
                    page = self.server.watched.page()
                    self._send(HTTPStatus.OK, page, "text/html; charset=utf-8")
                else:
                    content = json.dumps(self.server.watched.status()).encode()
                    self._send(HTTPStatus.OK, content, "application/json")
            except FrettaError as error:  # a store that cannot be read now; it may be later
                self._send(HTTPStatus.INTERNAL_SERVER_ERROR, encoded(str(error)))

    do_HEAD = do_GET  # noqa: N815

    def _send(self, status: HTTPStatus, content: bytes, kind: str = "text/plain") -> None:
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Cache-Control": "no-store",
            "Content-Security-Policy": policy(live=True) + "; frame-ancestors 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Silence: the terminal belongs to the user."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = False  # two servers on one port would take turns
    watched: Watched
    names: frozenset[str]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that went away is no event; anything else is shown as usual."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def serve(watched: Watched, port: int = 0) -> ThreadingHTTPServer:
    """A server that is ready to `serve_forever`; port 0 takes a free one."""
    try:
        server = _Server((HOST, port), _Handler)
    except (OSError, OverflowError) as error:
        reason = str(getattr(error, "strerror", None) or error).rstrip(".")
        raise ConfigError(
            f"cannot serve on port={port}: {reason}; choose another one, or port=0 for a free one"
        ) from error
    server.watched = watched
    server.names = frozenset(f"{name}:{server.server_address[1]}" for name in (HOST, "localhost"))
    return server
