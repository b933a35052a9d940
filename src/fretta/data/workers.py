"""Decoding in worker processes ahead of the model."""

from __future__ import annotations

import multiprocessing
from collections.abc import Generator, Sequence
from multiprocessing.context import BaseContext
from typing import Protocol, TypeVar

from .._util import end_with_parent, ignoring_interrupts

T = TypeVar("T", covariant=True)


class Readable(Protocol[T]):
    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> T: ...


def _unchanged(item: T) -> T:  # type: ignore[misc]
    return item


def _context() -> BaseContext:
    """How workers start: from a server that has imported what they need, where there is one."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "fretta.data"])  # saves seconds per stream
    return context


def _prepare(worker: int) -> None:
    """The server that started the worker lives as long as its workers do, so the loader's own
    check, which looks at the parent's number, would wait for ever."""
    end_with_parent()


def ahead(
    reader: Readable[T], numbers: Sequence[int], workers: int, prefetch: int
) -> Generator[T, None, None]:
    """reader[n] for each number, in order. The items do not depend on the number of workers.

    Workers are started fresh (never forked from a process that already runs torch's threads), and
    end with the generator. They send arrays, not tensors, so nothing lives in shared memory, which
    is small in containers. The loader gets its own generator: the default one, which a method may
    draw from, is left alone.
    """
    if workers == 0 or not numbers:
        for number in numbers:
            yield reader[number]
        return
    import torch
    from torch.utils.data import DataLoader

    loader: DataLoader[T] = DataLoader(
        reader,  # type: ignore[arg-type]
        batch_size=None,
        sampler=numbers,
        num_workers=min(workers, len(numbers)),
        collate_fn=_unchanged,
        worker_init_fn=_prepare,
        prefetch_factor=prefetch,
        multiprocessing_context=_context(),
        generator=torch.Generator(),
    )
    with ignoring_interrupts():
        items = iter(loader)
    try:
        yield from items
    finally:
        # Dropping the iterator would do, but a traceback (Ctrl-C) can keep it alive for long.
        items._shutdown_workers()  # type: ignore[attr-defined]
