"""What writing a corrupted data set needs, whichever its layout: order, record, workers."""

from __future__ import annotations

import json
import multiprocessing
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from .._util import atomic, ignoring_interrupts
from ..errors import DataError, FrettaWarning

__all__ = ["Order", "Progress", "Record", "Summary", "Workers", "atomic"]

T = TypeVar("T")
Progress = Callable[[int, int], None]  # (images done, images in total)

RECORD = "severities.json"


@dataclass(frozen=True)
class Order:
    """What to make. Plain data: it travels to the workers."""

    names: tuple[str, ...]
    severities: tuple[int, ...]
    seed: int
    constants: str | None


@dataclass
class Summary:
    """What `corrupt_folder` did, in images (one for each corruption and severity)."""

    layout: str  # "cifar" or "images"
    folder: Path
    written: int = 0
    kept: int = 0  # already there
    unreadable: list[str] = field(default_factory=list)  # sources skipped, one "path: reason" each


class Record:
    """`severities.json`: how the folder was made and which severities are complete.

    A folder is continued only with the seed and constants it was begun with.
    """

    def __init__(self, folder: Path, layout: str, order: Order, **facts: Any) -> None:
        self.path = folder / RECORD
        made = {"layout": layout, "seed": order.seed, "constants": order.constants, **facts}
        self.complete: dict[str, list[int]] = {}
        if self.path.is_file():
            try:
                found = json.loads(self.path.read_text())
                self.complete = {k: [int(s) for s in v] for k, v in found.pop("complete").items()}
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                raise DataError(
                    f"{self.path} is damaged ({error}); remove the folder and start again"
                ) from error
            if found != made:
                raise DataError(
                    f"{folder} was begun with {found}, and this run has {made}: the two cannot be "
                    "mixed. Choose another folder, or the same settings"
                )
        self.made = made

    def add(self, name: str, severities: Iterable[int]) -> None:
        self.complete[name] = sorted({*self.complete.get(name, []), *severities})
        self.write()

    def write(self) -> None:
        with atomic(self.path) as draft:
            draft.write_text(json.dumps({**self.made, "complete": self.complete}, indent=1) + "\n")


def _prepare() -> None:
    """In each worker: one thread, and no second copy of the warnings the parent has given."""
    warnings.simplefilter("ignore", FrettaWarning)
    if find_spec("threadpoolctl") is not None:  # comes with scikit-learn
        import_module("threadpoolctl").threadpool_limits(1)


class Workers:
    """`jobs` processes, kept for the whole run; with one job everything happens in this process."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.pool: ProcessPoolExecutor | None = None
        if jobs > 1:
            kinds = multiprocessing.get_all_start_methods()
            # Never a fork of this process: torch's threads may be running in it.
            kind = "forkserver" if "forkserver" in kinds else "spawn"
            context = multiprocessing.get_context(kind)
            self.pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_prepare)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self.pool is None:
            return
        if kind is not None and not issubclass(kind, Exception):  # Ctrl-C: files appear whole
            for process in list(self.pool._processes.values()):
                process.terminate()
        self.pool.shutdown(cancel_futures=True)

    def run(self, function: Callable[..., T], tasks: Iterable[tuple[Any, ...]]) -> Iterator[T]:
        """function(*task) for every task, in order; only a few tasks are sent ahead."""
        if self.pool is None:
            for task in tasks:
                yield function(*task)
            return
        waiting = iter(tasks)
        first = islice(waiting, 2 * self.jobs)
        with ignoring_interrupts():  # the first task starts the processes
            ahead: list[Future[T]] = [self.pool.submit(function, *task) for task in first]
        while ahead:
            yield ahead.pop(0).result()
            ahead.extend(self.pool.submit(function, *task) for task in islice(waiting, 1))
