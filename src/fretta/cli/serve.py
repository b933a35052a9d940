"""`fretta serve`: a service that adapts, many streams at once."""

from __future__ import annotations

import signal
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from . import options as opt
from .app import print_error, print_line

if TYPE_CHECKING:
    from ..serve.settings import Settings


@dataclass(frozen=True)
class CommandOptions:
    """Named as the fields of Settings."""

    store: Annotated[
        str | None,
        typer.Option(help="Folder or fsspec URL of the streams' checkpoints; else none are kept."),
    ] = None
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Batches between checkpoints.")] = 16
    batch_size: opt.BatchSize = 32
    wait: Annotated[float, typer.Option(min=0, help="Seconds a batch waits to become full.")] = 0.01
    shards: Annotated[int, typer.Option(min=1, help="Processes that hold the streams.")] = 1
    max_streams: Annotated[int, typer.Option(min=1, help="In the memory of a shard.")] = 256
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: all.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = 1 << 26
    max_images: Annotated[int, typer.Option(min=1, help="Images of a request.")] = 256
    max_pixels: Annotated[int, typer.Option(min=1, help="Pixels of an image.")] = 50_000_000
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds of a request.")] = 60.0
    compare_source: Annotated[
        bool,
        typer.Option("--compare-source", help="Source model on every image, not one in eight."),
    ] = False


def serve(
    model: opt.ModelOptions,
    options: CommandOptions,
    adaptation: opt.AdaptationOptions,
    write_config: Annotated[
        Path | None, typer.Option(help="Write a YAML for `serve deploy` on a cluster, and end.")
    ] = None,
) -> None:
    """Serve a model that adapts, over HTTP. A token comes from the environment: FRETTA_TOKEN."""
    from ..serve.settings import Settings

    settings = Settings(**model.arguments(), **adaptation.arguments(), **vars(options))
    if write_config is not None:
        from ..serve.config import write_yaml

        write_yaml(settings, write_config)
        print_line(f"wrote {write_config}; on a cluster: serve deploy {write_config}")
        return
    _run(settings)


def _run(settings: Settings) -> None:
    from ..serve.local import serving

    _check(settings)
    stop = threading.Event()
    received: list[int] = []

    def end(number: int, _: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        stop.set()

    old = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with _locked(settings.store), serving(settings) as address:
            print_line(f"serving {address}   (API: {address}docs, Ctrl-C ends it)")
            stop.wait()
            print_line("stopping; every stream gets its checkpoint")
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    print_line("stopped" if settings.store else "stopped; without --store nothing was kept")


def _locked(store: str | None) -> AbstractContextManager[None]:
    """A folder of checkpoints belongs to one service: of two, the later one to write would win."""
    from ..deploy.output import lock_folder
    from ..experiment.store import is_url

    return nullcontext() if store is None or is_url(store) else lock_folder(Path(store))


def _check(settings: Settings) -> None:
    """Before processes start: a mistake in the options ends in one line."""
    import socket

    case = settings.open_case()
    settings.adapter(case)
    print_line(f"model   {case.spec}, {len(case.labels.names):,} classes")
    print_line(f"images  {case.preprocessing.text()}")
    with socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise ConfigError(
                f"cannot listen on host={settings.host!r}, port={settings.port}: {error.strerror}"
            ) from error
    if settings.host not in ("127.0.0.1", "localhost", "::1") and settings.bearer is None:
        print_error(
            f"whoever reaches {settings.host} can use the service; set FRETTA_TOKEN", "warning"
        )
    if settings.store is None:
        print_line("note: without --store streams end with the process that holds them")
