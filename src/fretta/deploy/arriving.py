"""Paths that arrive on the standard input, read without blocking for good."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from typing import BinaryIO

CHUNK = 1 << 16
PATIENCE = 0.2  # seconds between looks at `stop`


def entries(stream: BinaryIO, stop: threading.Event, separator: bytes = b"\n") -> Iterator[bytes]:
    """Entries as they arrive, until the stream ends or `stop` is set.

    A thread that sits in a read of the standard input cannot be ended, so it is asked first
    whether there is anything to read.
    """
    rest = b""
    for chunk in _chunks(stream, stop):
        *whole, rest = (rest + chunk).split(separator)
        yield from whole
    if rest and not stop.is_set():
        yield rest


def _chunks(stream: BinaryIO, stop: threading.Event) -> Iterator[bytes]:
    try:
        number = stream.fileno()
    except (OSError, ValueError, AttributeError):  # not a real file: nothing can block
        yield from iter(lambda: stream.read(CHUNK), b"")
        return
    while not stop.is_set():
        ready, _, _ = select.select([number], [], [], PATIENCE)
        if not ready:
            continue
        chunk = os.read(number, CHUNK)
        if not chunk:
            return
        yield chunk
