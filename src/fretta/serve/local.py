"""The service on this machine: a Ray of its own, which ends with it."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from ..errors import ConfigError, MissingExtraError
from ..experiment.store import is_url
from .settings import Settings

OBJECTS = 1 << 29  # bytes of images on their way between processes
SLOWEST = 120  # seconds until the proxy listens
QUIET = {"log_level": "WARNING", "enable_access_log": False}
PATIENCE = {  # a slow machine is not a broken one
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "30",
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing leaves this machine
}


@contextmanager
def serving(settings: Settings, **ray_options: Any) -> Iterator[str]:
    """The address of the service while it runs; afterwards every stream has its checkpoint."""
    for name, value in PATIENCE.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        from ray import serve

        from . import deployment  # noqa: F401  now: until it is deployed, the proxy answers 404
    except ModuleNotFoundError as error:
        raise MissingExtraError("ray[serve]", "serve", "the service") from error
    options = {
        "num_cpus": settings.shards + 1,  # a count of places, not of cores
        "include_dashboard": False,
        "object_store_memory": OBJECTS,
        "logging_level": logging.ERROR,
        "_node_ip_address": "127.0.0.1",
    }
    ray.init(address="local", **{**options, **ray_options})
    try:
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        http = {"host": settings.host, "port": settings.port}
        with suppress(TimeoutError):  # the proxy takes more than a minute; all else is there
            serve.start(http_options=http, logging_config=QUIET)
        deploy(settings)
        _until_listening(settings.host, settings.port)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        yield f"http://{host}:{settings.port}/"
    finally:
        serve.shutdown()  # waits for the last checkpoints
        ray.shutdown()


def deploy(settings: Settings) -> None:
    """Begin with these settings, or go on with them: a rolling restart."""
    from ray import serve

    from .deployment import make

    try:
        serve.run(make(here(settings)), name="fretta", route_prefix="/", logging_config=QUIET)
    except RuntimeError as error:
        raise ConfigError(f"the service does not start: {error}") from error


def _until_listening(host: str, port: int) -> None:
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    end = time.monotonic() + SLOWEST
    while True:
        try:
            socket.create_connection((reached, port), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise ConfigError(
                    f"nothing listens on host={host!r}, port={port} after {SLOWEST} s: {error}"
                ) from error
            time.sleep(0.2)


def here(settings: Settings) -> Settings:
    """With absolute paths, for processes elsewhere, and the token of this environment."""
    found = {
        name: os.path.abspath(value)
        for name in ("weights", "labels", "source")
        if (value := getattr(settings, name)) is not None and os.path.exists(value)
    }
    if os.path.splitext(settings.model)[1] and os.path.isfile(settings.model):  # weights with card
        found["model"] = os.path.abspath(settings.model)
    if settings.store is not None and not is_url(settings.store):
        found["store"] = os.path.abspath(settings.store)
    return replace(settings, **found, token=settings.bearer)
