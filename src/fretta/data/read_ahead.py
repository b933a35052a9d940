"""Batches of decoded image files, read ahead of the model by threads.

Threads, not processes: Pillow decodes and resizes outside the interpreter lock, paths that arrive
one by one need no list to share, and nothing is left behind when the process is killed.
"""

from __future__ import annotations

import os
import queue
import select
import stat
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import DataError
from ..models.preprocessing import Decoding
from .images import decode
from .listing import shown

AHEAD = 2  # batches that wait decoded
SMALL = 4  # a rest below 1/SMALL of a batch joins the batch before it
CHUNK = 1 << 16
POLL = 0.2  # seconds between looks at `stop`

Image = tuple[NDArray[np.uint8] | None, str]  # pixels and a note, or None and why not


@dataclass
class FileBatch:
    """Some files: the pixels of those that could be read."""

    names: list[str]
    pixels: Tensor  # uint8 (n, 3, H, W)
    kept: list[int]  # positions in `names` of the rows of `pixels`
    notes: dict[int, str] = field(default_factory=dict)  # by position
    unreadable: dict[int, str] = field(default_factory=dict)

    def check_readable(self, advice: str) -> None:
        """Raise on the first file that could not be read."""
        if self.unreadable:
            first, more = min(self.unreadable), len(self.unreadable) - 1
            raise DataError(
                f"unreadable image {shown(self.names[first])}: {self.unreadable[first]}"
                + (f" (and {more} more in this batch)" if more else "")
                + f"; {advice}"
            )


def read_image(path: str, decoding: Decoding) -> Image:
    """Pixels of one file, or why there are none. Never raises for what a file may be."""
    try:
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode):  # opening a pipe would block
            return None, "not a regular file"
        if info.st_size == 0:
            return None, "the file is empty"
        notes: list[str] = []
        pixels = decode(path, decoding, notes)
    except (OSError, ValueError) as error:  # DataError is one
        return None, str(error.__cause__ or error) or type(error).__name__
    except MemoryError:
        return None, "too large for the memory of this machine"
    return pixels, "; ".join(notes)


def group(names: Iterable[str], size: int, total: int | None) -> Iterator[list[str]]:
    """Batches of `size` names. Where the total is known, a very small rest is not left alone:
    batch statistics of one or two images would spoil their predictions."""
    stream, left = iter(names), total
    while True:
        joined = left is not None and size < left < size + max(1, size // SMALL)
        batch = list(islice(stream, left if joined else size))
        if not batch:
            return
        left = None if left is None else left - len(batch)
        yield batch


def read_ahead(
    batches: Iterable[list[str]],
    path: Callable[[str], str],
    decoding: Decoding,
    workers: int = 2,
    stop: threading.Event | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Generator[FileBatch]:
    """Decoded batches in their order, until they end or `stopped`.

    path   the file of a name
    stop   set at the end; what makes the batches must end when it is set
    """
    end = stop or threading.Event()
    ready: queue.Queue[Any] = queue.Queue(AHEAD)  # (names, futures), an Exception, None at the end

    def put(item: Any) -> None:
        while not end.is_set():
            with suppress(queue.Full):
                ready.put(item, timeout=POLL)
                return

    def submit() -> None:
        try:
            for names in batches:
                if end.is_set():
                    return
                put((names, [pool.submit(read_image, path(name), decoding) for name in names]))
            put(None)
        except Exception as error:  # noqa: BLE001 - raised again where the batches are taken
            put(error)

    pool = ThreadPoolExecutor(workers, "decode")
    thread = threading.Thread(target=submit, daemon=True)
    thread.start()
    try:
        while not stopped():
            try:
                item = ready.get(timeout=POLL)
            except queue.Empty:
                continue
            # Ctrl-C ends the writer of a pipe too: what looks like the end, or like a last and
            # smaller batch, is then cut off, and belongs to the run that resumes.
            if item is None or stopped():
                return
            if isinstance(item, Exception):
                raise item
            yield _gather(*item)
    finally:
        end.set()
        thread.join()
        pool.shutdown(cancel_futures=True)


def _gather(names: list[str], futures: list[Future[Image]]) -> FileBatch:
    images = [future.result() for future in futures]
    arrays = [pixels for pixels, _ in images if pixels is not None]
    stacked = np.stack(arrays) if arrays else np.zeros((0, 1, 1, 3), np.uint8)
    return FileBatch(
        names,
        torch.from_numpy(stacked).permute(0, 3, 1, 2).contiguous(),
        [i for i, (pixels, _) in enumerate(images) if pixels is not None],
        {i: note for i, (pixels, note) in enumerate(images) if pixels is not None and note},
        {i: note for i, (pixels, note) in enumerate(images) if pixels is None},
    )


def read_readable(
    names: list[str], path: Callable[[str], str], decoding: Decoding, size: int, workers: int = 2
) -> Iterator[tuple[list[int], Tensor]]:
    """(positions, uint8 images) of the files that can be read, in batches of about `size`."""
    first = 0
    for batch in read_ahead(group(names, size, len(names)), path, decoding, workers):
        if batch.kept:
            yield [first + i for i in batch.kept], batch.pixels
        first += len(batch.names)


def read_entries(
    stream: BinaryIO, stop: threading.Event, separator: bytes = b"\n"
) -> Iterator[bytes]:
    """Entries of a stream as they arrive, until it ends or `stop` is set.

    A thread that blocks in a read of the standard input cannot be ended, so it looks first
    whether there is anything to read.
    """
    rest = b""
    for chunk in _chunks(stream, stop):
        *entries, rest = (rest + chunk).split(separator)
        yield from entries
    if rest and not stop.is_set():
        yield rest


def _chunks(stream: BinaryIO, stop: threading.Event) -> Iterator[bytes]:
    try:
        number = stream.fileno()
    except (OSError, ValueError, AttributeError):  # not a real file: nothing can block
        yield from iter(lambda: stream.read(CHUNK), b"")
        return
    while not stop.is_set():
        if select.select([number], [], [], POLL)[0]:
            chunk = os.read(number, CHUNK)
            if not chunk:
                return
            yield chunk
