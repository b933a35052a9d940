"""The app of `fretta serve` on a port of this machine, without Ray."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def served(**settings: Any) -> Iterator[str]:
    """Its address, without a slash at the end."""
    uvicorn = pytest.importorskip("uvicorn")
    from fretta.serve.app import make_app
    from fretta.serve.settings import Settings
    from fretta.serve.shard import Shard

    given = Settings(**settings)
    app = make_app([Shard(given)], given)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
