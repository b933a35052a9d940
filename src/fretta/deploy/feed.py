"""Batches of decoded images, read ahead of the model by threads.

Threads, not processes: Pillow decodes and resizes outside the interpreter lock, paths that arrive
one by one need no list to share, and nothing is left behind when the process is killed.
"""

from __future__ import annotations

import os
import queue
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from types import TracebackType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.images import decode
from ..errors import DataError
from ..models.preprocessing import Decoding
from .arriving import PATIENCE

AHEAD = 2  # batches that wait decoded
SMALL = 4  # a rest below 1/SMALL of a batch joins the batch before it

Image = tuple[NDArray[np.uint8] | None, str]  # (pixels or None, note or why not)


@dataclass
class Group:
    """One batch of files: pixels of those that could be read, and a remark on some."""

    names: list[str]
    pixels: Tensor  # uint8 (n, 3, H, W)
    kept: list[int]  # positions in `names` of the rows of `pixels`
    notes: dict[int, str] = field(default_factory=dict)  # by position
    unreadable: dict[int, str] = field(default_factory=dict)


def grouped(names: Iterable[str], size: int, total: int | None) -> Iterator[list[str]]:
    """Batches of `size` names. Where the total is known, a very small rest is not left alone:
    batch statistics of one or two images would spoil their predictions."""
    stream, left = iter(names), total
    while True:
        take = size
        if left is not None and size < left < size + max(1, size // SMALL):
            take = left
        batch = list(islice(stream, take))
        if not batch:
            return
        left = None if left is None else left - len(batch)
        yield batch


def read_image(path: str, how: Decoding) -> Image:
    """Pixels of one file, or why there are none. Never raises for what a file may be."""
    try:
        facts = os.stat(path)
        if not stat.S_ISREG(facts.st_mode):  # opening a pipe would wait for ever
            return None, "not a regular file"
        if facts.st_size == 0:
            return None, "the file is empty"
        notes: list[str] = []
        pixels = decode(path, how, notes)
    except (OSError, ValueError) as error:  # DataError is one
        return None, str(error.__cause__ or error) or type(error).__name__
    except MemoryError:
        return None, "too large for the memory of this machine"
    return pixels, "; ".join(notes)


class Feed:
    """Groups in their order, a few decoded ahead; as a context, so that its threads end.

    `stop` is set at the end; whatever makes the groups must end when it is.
    """

    def __init__(
        self,
        groups: Iterable[list[str]],
        path: Callable[[str], str],
        how: Decoding,
        workers: int,
        stop: threading.Event,
    ) -> None:
        self._path, self._how, self._stop = path, how, stop
        self.ended = False  # whether the last group was taken
        self._queue: queue.Queue[tuple[list[str], list[Future[Image]]] | Exception | None] = (
            queue.Queue(AHEAD)
        )
        self._pool = ThreadPoolExecutor(max(1, workers), "decode")
        self._thread = threading.Thread(target=self._submit, args=(groups,), daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _submit(self, groups: Iterable[list[str]]) -> None:
        try:
            for names in groups:
                if self._stop.is_set():
                    return
                tasks = [self._pool.submit(read_image, self._path(n), self._how) for n in names]
                self._put((names, tasks))
            self._put(None)
        except Exception as error:  # noqa: BLE001 - raised again where the groups are taken
            self._put(error)

    def _put(self, item: tuple[list[str], list[Future[Image]]] | Exception | None) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=PATIENCE)
                return
            except queue.Full:
                continue

    def take(self, stopped: Callable[[], bool]) -> Group | None:
        """The next group; None at the end, or when `stopped` while waiting."""
        while not stopped():
            try:
                item = self._queue.get(timeout=PATIENCE)
            except queue.Empty:
                continue
            # Ctrl-C ends the writer of a pipe too: what looks like its end, or like a last and
            # smaller batch, is then cut off, and belongs to the run that resumes.
            if stopped():
                return None
            if item is None or isinstance(item, Exception):
                if item is not None:
                    raise item
                self.ended = True
                return None
            return _gathered(item[0], [task.result() for task in item[1]])
        return None


def _gathered(names: list[str], images: list[Image]) -> Group:
    kept = [i for i, (pixels, _) in enumerate(images) if pixels is not None]
    arrays = [pixels for pixels, _ in images if pixels is not None]
    stacked = np.stack(arrays) if arrays else np.zeros((0, 1, 1, 3), np.uint8)
    return Group(
        names,
        torch.from_numpy(stacked).permute(0, 3, 1, 2).contiguous(),
        kept,
        {i: note for i, (pixels, note) in enumerate(images) if pixels is not None and note},
        {i: note for i, (pixels, note) in enumerate(images) if pixels is None},
    )


def read_batches(
    paths: Iterable[str], how: Decoding, size: int, workers: int = 2
) -> Iterator[tuple[list[int], Tensor]]:
    """(positions, uint8 images) of the files that can be read, in batches of about `size`."""
    position = 0
    for group in read_groups(paths, how, size, workers):
        if group.kept:
            yield [position + i for i in group.kept], group.pixels
        position += len(group.names)


def read_groups(
    paths: Iterable[str], how: Decoding, size: int, workers: int = 2
) -> Iterator[Group]:
    """All files in groups of about `size`; the names are the paths."""
    listed = list(paths)
    batches = deque(grouped(listed, size, len(listed)))
    with ThreadPoolExecutor(max(1, workers), "decode") as pool:

        def submit() -> tuple[list[str], list[Future[Image]]]:
            batch = batches.popleft()
            return batch, [pool.submit(read_image, path, how) for path in batch]

        following = submit() if batches else None
        while following is not None:
            batch, tasks = following
            group = _gathered(batch, [task.result() for task in tasks])
            following = submit() if batches else None  # decoded while this one is looked at
            yield group


def refuse_unreadable(group: Group, advice: str) -> None:
    """Without --skip-unreadable the first file that cannot be read ends the run."""
    if group.unreadable:
        from ..data.listing import shown

        first = min(group.unreadable)
        more = len(group.unreadable) - 1
        raise DataError(
            f"unreadable image {shown(group.names[first])}: {group.unreadable[first]}"
            + (f" (and {more} more in this batch)" if more else "")
            + f"; {advice}"
        )
