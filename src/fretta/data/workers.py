"""Work done in other processes, ahead of its use."""

from __future__ import annotations

import multiprocessing
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from multiprocessing.context import BaseContext
from typing import Any, TypeVar

from .._util import end_with_parent, ignoring_interrupts
from ..errors import FrettaWarning

S = TypeVar("S")
T = TypeVar("T")

_function: Callable[[Any], Any]  # in a worker: what it computes


def _context() -> BaseContext:
    """Start workers from a server that has imported what they need, where there is one.

    Never a fork of this process: torch's threads may be running in it.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "fretta.data"])  # saves seconds per stream
    return context


def _start(function: Callable[[Any], Any], quiet: bool) -> None:
    """In each worker, once: end with the parent, use one thread."""
    global _function
    _function = function
    end_with_parent()
    if quiet:
        warnings.simplefilter("ignore", FrettaWarning)
    import_module("torch").set_num_threads(1)
    if find_spec("threadpoolctl") is not None:  # comes with scikit-learn
        import_module("threadpoolctl").threadpool_limits(1)


def _call(task: Any) -> Any:
    return _function(task)


def ahead(
    function: Callable[[S], T],
    tasks: Iterable[S],
    workers: int,
    prefetch: int = 2,
    quiet: bool = False,
) -> Generator[T, None, None]:
    """function(task) for each task, in order; `workers` processes keep `prefetch` each ahead.

    The results do not depend on the number of workers; 0 computes in this process. Workers end
    with the generator. `quiet` keeps fretta's warnings to this process.
    """
    if workers == 0:
        yield from map(function, tasks)
        return
    context = _context()
    pool = ProcessPoolExecutor(workers, context, initializer=_start, initargs=(function, quiet))
    waiting = iter(tasks)
    sent: deque[Future[T]] = deque()

    def send(count: int) -> None:
        with ignoring_interrupts():  # sending a task may start a process
            sent.extend(pool.submit(_call, task) for task in islice(waiting, count))

    try:
        send(workers * prefetch)
        while sent:
            result = sent.popleft().result()
            send(1)
            yield result
    except (GeneratorExit, KeyboardInterrupt):  # nobody waits for the rest
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
