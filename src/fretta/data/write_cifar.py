"""The CIFAR-C layout: a `.npy` for each corruption, severities 1 to 5 stacked, and `labels.npy`."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from .._util import atomic
from ..corruptions.base import Pixels
from ..corruptions.engine import corrupt
from ..errors import DataError
from .cifar import read_batch
from .write import Order, Progress, Record, Summary, Workers

__all__ = ["find_test_batch", "write_cifar"]

BATCHES = ("test_batch", "test")  # CIFAR-10, CIFAR-100
LEVELS = 5
CHUNK = 500  # images in one task


def find_test_batch(source: Path) -> Path | None:
    """The test pickle, if this is a CIFAR folder in the python layout."""
    for name in BATCHES:
        if (source / name).is_file():
            return source / name
    return None


def _part(images: Pixels, name: str, severity: int, order: Order, start: int) -> Pixels:
    indices = np.arange(start, start + len(images))
    return corrupt(
        images, name, severity, seed=order.seed, indices=indices, constants=order.constants
    )


def _tasks(images: Pixels, name: str, severities: list[int], order: Order) -> Iterator[Any]:
    for severity in severities:
        for start in range(0, len(images), CHUNK):
            yield images[start : start + CHUNK], name, severity, order, start


def _existing(path: Path, images: Pixels) -> Pixels:
    """The array made so far, memory-mapped."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is damaged ({error}); remove it and run again") from error
    if array.shape != (LEVELS * len(images), *images.shape[1:]) or array.dtype != np.uint8:
        raise DataError(
            f"{path} is {array.dtype} {array.shape}, which is not five severities of "
            f"{len(images)} images; remove it or choose another folder"
        )
    return np.asarray(array)


def write_cifar(
    batch: Path, folder: Path, order: Order, workers: Workers, progress: Progress | None
) -> Summary:
    """Every array has room for all five severities, at their usual places. Those that were not
    asked for stay zero (and take no room on disk); `severities.json` says which are complete."""
    images, labels = read_batch(batch)
    digest = blake2b(images.tobytes(), digest_size=8).hexdigest()
    record = Record(folder, "cifar", order, images=len(images), pixels=digest)
    summary = Summary("cifar", folder)
    total = len(images) * len(order.names) * len(order.severities)
    if not (folder / "labels.npy").is_file():
        with atomic(folder / "labels.npy") as draft:
            np.save(draft, np.tile(labels, LEVELS))
    for name in order.names:
        path = folder / f"{name}.npy"
        before: list[int] = []
        if path.is_file():  # one that is not in the record came from elsewhere, complete
            before = record.complete.get(name, list(range(1, LEVELS + 1)))
        todo = [severity for severity in order.severities if severity not in before]
        summary.kept += len(images) * (len(order.severities) - len(todo))
        if progress is not None:
            progress(summary.written + summary.kept, total)
        if not todo:
            continue
        record.complete[name] = before
        record.write()
        with atomic(path) as draft:
            shape = (LEVELS, len(images), *images.shape[1:])
            array = np.lib.format.open_memmap(
                draft, mode="w+", dtype=np.uint8, shape=(LEVELS * len(images), *images.shape[1:])
            )
            blocks = array.reshape(shape)
            for severity in before:
                blocks[severity - 1] = _existing(path, images).reshape(shape)[severity - 1]
            place = [(s, start) for s in todo for start in range(0, len(images), CHUNK)]
            parts = workers.run(_part, _tasks(images, name, todo, order))
            for (severity, start), part in zip(place, parts, strict=True):
                blocks[severity - 1, start : start + len(part)] = part
                summary.written += len(part)
                if progress is not None:
                    progress(summary.written + summary.kept, total)
            array.flush()
            del blocks, array
        record.add(name, [*before, *todo])
    return summary
