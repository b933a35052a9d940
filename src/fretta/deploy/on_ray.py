"""Several folders or lists as independent streams on a Ray cluster, each with its own folder.

A stream is one task: an ordinary `adapt_images`, so its files are the same. A task whose worker
died goes on from its checkpoint. All nodes must see the images, the weights and the output.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import ConfigError, DataError, FrettaError, StoreError
from ..experiment.execute.cluster import OnProgress, begin_work, connected, run_tasks, task_device
from . import output
from .options import FREE, STDIN, AdaptOptions
from .run import adapt_images


@dataclass(frozen=True)
class StreamEnd:
    """What became of one stream."""

    name: str
    out: Path
    result: dict[str, Any] = field(default_factory=dict)  # as in settings.json
    notes: Sequence[str] = ()
    there: bool = False  # it was complete before
    error: str = ""  # why it is not complete


def adapt_on_ray(
    options: AdaptOptions,
    data: Sequence[str],
    address: str = "local",
    *,
    threads: int = 1,
    retries: int = 2,
    resume: bool = False,
    force: bool = False,
    on_progress: OnProgress = lambda name, done, total: None,
    on_end: Callable[[StreamEnd], None] = lambda end: None,
) -> list[StreamEnd]:
    """Adapt along every folder or list of `data`; the folder of each is `options.out`/NAME.

    address   of the cluster ("auto", "host:port"); "local" starts one here
    threads   of torch, and cores, for each stream
    retries   after a worker died
    resume    streams that are complete stay, the others go on or begin
    """
    options = replace(options, device=task_device(options.device))
    cuda = options.device == "cuda"
    streams = {
        name: replace(options, data=path, out=options.out / name)
        for name, path in stream_names(data).items()
    }
    ends = {name: end for name, o in streams.items() if (end := _look(name, o, resume, force))}
    for end in ends.values():
        on_end(end)
    # Workers see this folder or end; in it, a stream notes that it has begun.
    mark = options.out / f".running-{uuid.uuid4().hex}"
    here = os.getcwd()
    tasks = {
        name: (name, o, here, mark, threads, force)
        for name, o in streams.items()
        if name not in ends
    }
    needs: dict[str, Any] = {"threads": threads, "cuda": cuda, "retries": retries}
    if tasks:
        with ExitStack() as closed, connected(address, threads, cuda) as (ray, was_open):
            with output.disk_errors(mark):
                mark.mkdir(parents=True)
            closed.callback(shutil.rmtree, mark, ignore_errors=True)  # tasks begin while it closes
            ended = run_tasks(ray, _task, tasks, on_progress, cancel=was_open, **needs)
            with closing(ended):
                for name, reference in ended:
                    ends[name] = _result(ray, reference, name, streams[name].out)
                    on_end(ends[name])
    return [ends[name] for name in streams]


def stream_names(data: Sequence[str]) -> dict[str, str]:
    """Names for the output folders: the last parts of each path, as many as make them unique."""
    paths: dict[Path, str] = {}
    for given in data:
        path = Path(given).absolute()
        if ".." in path.parts:  # as a name it would lead out of --out
            path = path.resolve()
        if given == STDIN:
            raise ConfigError(
                "paths on stdin (--data -) are one stream; --ray takes folders, lists"
            )
        if not path.exists():
            raise DataError(f"--data {given!r} is no folder or list of images that exists")
        if path in paths:
            raise ConfigError(f"--data {given!r} is given twice, so its streams would be the same")
        paths[path] = given
    for depth in range(1, 1 + max((len(p.parts) for p in paths), default=0)):
        tails = ((p.with_suffix("") if p.is_file() else p).parts[-depth:] for p in paths)
        names = ["-".join(part.strip(os.sep) or "root" for part in tail) for tail in tails]
        if len(set(names)) == len(names):
            return dict(zip(names, paths.values(), strict=True))
    raise ConfigError(f"--data {' --data '.join(data)} give output folders of the same name")


def _look(name: str, options: AdaptOptions, resume: bool, force: bool) -> StreamEnd | None:
    """Refuse what would be mixed up before any work; the end of a stream that is complete."""
    out = options.out
    if not out.exists() or force:
        return None
    if not resume:
        with output.lock_folder(out):
            output.read_previous(out, resume, force)
        return None
    try:
        settings = json.loads((out / output.SETTINGS).read_text(encoding="utf-8"))
        before, complete = settings["options"], settings["complete"]
    except (OSError, ValueError, LookupError, TypeError):
        return None  # adapt_images says what is wrong
    if not complete:
        return None
    free = set(FREE) - {"data"}
    now = {k: v for k, v in options.to_json().items() if k not in free}
    output.check_same({k: v for k, v in before.items() if k not in free}, now, out)
    return StreamEnd(name, out, settings["result"], there=True)


def _result(ray: Any, reference: Any, name: str, out: Path) -> StreamEnd:
    try:
        return StreamEnd(name, out, **ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        return StreamEnd(name, out, error=f"an error nobody expected: {error.cause!r}")
    except ray.exceptions.RayError as error:
        reason = f"its Ray worker died (killed, often out of memory), or its node: {error}"
        return StreamEnd(name, out, error=reason)


# ---- inside a worker ----------------------------------------------------------------------------


def _task(
    name: str, options: AdaptOptions, where: str, mark: Path, threads: int, force: bool, board: Any
) -> dict[str, Any]:
    with suppress(OSError):  # relative paths mean what they mean to the driver
        os.chdir(where)
    try:
        if not mark.is_dir():
            raise StoreError(
                f"a worker on {os.uname().nodename} does not see what the driver wrote to"
                f" {str(options.out.parent)!r}; give a folder that all nodes share"
            )
        begun = mark / name  # by a worker that died: go on, and replace nothing
        if begun.exists() and (end := _look(name, options, resume=True, force=False)):
            return {"result": end.result}  # it died after its last file
        post = begin_work(threads, name, board)
        result = adapt_images(
            options,
            resume=begun.exists() or not force,
            force=force and not begun.exists(),
            on_start=lambda setup, counts: begun.touch(),
            on_batch=lambda counts: post(counts.files, 0),
        )
    except (FrettaError, OSError) as error:
        return {"error": str(error)}
    return {"result": result.to_json(), "notes": list(result.notes)}
