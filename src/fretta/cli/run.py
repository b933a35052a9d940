"""`fretta run`, `fretta tune` and `fretta evaluate`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from . import options as opt
from .app import print_line
from .progress import show_runs
from .tables import print_methods

if TYPE_CHECKING:
    from torch import Tensor

    from ..data.listing import Listing
    from ..data.stream import Stream
    from ..experiment.case import Case
    from ..experiment.records import Job
    from ..experiment.suite import Suite

SuiteName = Annotated[str, typer.Argument(help="A suite of the package, or a TOML file.")]


def run(
    suite: SuiteName,
    data: opt.DataRoot = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Only this method or label (several times).")
    ] = None,
    case: Annotated[list[str] | None, typer.Option(help="Only this case (several times).")] = None,
    seed: opt.Seeds = None,
    limit: opt.Limit = None,
    run: opt.RunOptions = opt.RunOptions(),
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode images, per run.")] = 0,
    checkpoint: Annotated[
        float, typer.Option(min=0, help="Seconds between checkpoints of a run.")
    ] = 60.0,
) -> None:
    """Run a suite; results that are in the store are kept, and an interrupted suite goes on."""
    from ..experiment.suite import load_suite

    run_suite(
        load_suite(suite).restricted(method, seed, limit, case), data, run, workers, checkpoint
    )


def tune(
    suite: SuiteName,
    method: Annotated[str, typer.Option(help="The method to tune.")],
    rule: Annotated[
        str,
        typer.Option(help="What decides: oracle, first-domain, extra-corruptions or label-free."),
    ],
    grid: Annotated[
        list[str] | None,
        typer.Option(help="NAME=V,V instead of the paper's grids (several times)."),
    ] = None,
    product: Annotated[
        bool, typer.Option("--product", help="Every combination; else one field after another.")
    ] = False,
    optuna: Annotated[
        int | None, typer.Option(min=1, help="Sample so many settings with Optuna.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the best settings as a suite fragment.")
    ] = None,
    data: opt.DataRoot = None,
    jobs: opt.Jobs = 1,
    seed: opt.Seeds = None,
    limit: opt.Limit = None,
    run: opt.StoreOptions = opt.StoreOptions(),
) -> None:
    """Choose hyper-parameters by a stated rule; an interrupted search goes on."""
    from ..experiment.execute import Options
    from ..experiment.store import Store
    from ..experiment.suite import load_suite
    from ..experiment.tune import fragment, parse_grid, write_fragment
    from ..experiment.tune import tune as search

    if product and optuna is not None:
        raise ConfigError("--product and --optuna are two searches; give one of them")
    opt.check_file(out, "--out")
    result = search(
        load_suite(suite).restricted(limit=limit),
        method,
        Store(run.store),
        rule=rule,
        grid=parse_grid(grid) if grid else None,
        product=product,
        optuna_trials=optuna,
        root=data,
        seeds=tuple(seed or [0]),
        parallel=jobs,
        options=Options(run.threads, run.device),
        on_trial=lambda trial: print_line(
            f"trial {trial.number}: {trial.text}: "
            + ("failed" if trial.score is None else f"{trial.score:.4f}")
        ),
    )
    print_line(
        f"\n{result.runs_done} runs done, {result.runs_found} were there. Best by {result.rule}:\n"
    )
    print_line(fragment(result))
    if out is not None:
        print_line(f"wrote {write_fragment(result, out)}")


def evaluate(
    model: opt.ModelOptions,
    data: opt.DataOptions,
    methods: opt.MethodOptions,
    domain: opt.Domains = None,
    severity: opt.Severity = None,
    stream: opt.StreamOptions = opt.StreamOptions(batch_size=128),
    source: opt.Source = None,
    run: opt.RunOptions = opt.RunOptions(),
) -> None:
    """Evaluate methods on one data set and keep the results in the store."""
    from ..experiment.suite import jobs_on

    names, values = opt.check_methods(methods.method), opt.hyperparameters(methods.set_)
    case = open_case(model, data, source, **stream.shift(severity))
    jobs = jobs_on(case, dict.fromkeys(names, values), **stream.protocol(domain))
    run_jobs(case.data.name, jobs, run)


def open_case(
    model: opt.ModelOptions,
    data: opt.DataOptions,
    source: str | None,
    *,
    files: bool = False,
    **options: Any,
) -> Case:
    """The model and the data set; prints how images become the input of the model.

    files   a folder or a list of images is no data set: the case has none
    """
    from ..experiment.case import open_case

    data.check()
    # --labels also says which class a folder of source images is
    if data.labels is not None and not any(p and Path(p).exists() for p in (data.data, source)):
        raise ConfigError(
            f"--labels {str(data.labels)!r} names classes for a folder or a list of images; the"
            f" data set {data.data!r} names its own: leave it out"
        )
    known = {**model.arguments(), "source": source, "root": data.root, "labels": data.labels}
    known |= options
    case = open_case(**known, data=None if files and Path(data.data).exists() else data.data)
    print_line(f"images  {case.images_text()}")
    return case


def read_files(
    case: Case,
    listing: Listing,
    size: int,
    workers: int | None,
    unreadable: list[tuple[str, str]],
    skip: bool = True,
) -> Iterator[tuple[list[str], Tensor]]:
    """(names, uint8 images) in batches of about `size`.

    unreadable   gets (file, why) of what cannot be read; without `skip` that is an error
    """
    from ..data.read_ahead import group, read_ahead

    batches = group(listing.names, size, len(listing.names))
    for batch in read_ahead(batches, listing.path, case.preprocessing.decoding(), workers or 2):
        if not skip:
            batch.check_readable("repair or remove the file, or give --skip-unreadable")
        unreadable.extend((batch.names[i], why) for i, why in sorted(batch.unreadable.items()))
        if batch.kept:
            yield [batch.names[i] for i in batch.kept], batch.pixels


def skipped(stream: Stream) -> list[tuple[str, str]]:
    """(file, why) of what the latest pass left out, as `read_files` says it."""
    found = stream.skipped
    return [(u.path, u.reason.removeprefix(f"unreadable image {u.path}: ")) for u in found]


def run_suite(
    suite: Suite, root: Path | None, run: opt.RunOptions, workers: int = 0, checkpoint: float = 60.0
) -> None:
    """The runs of a suite; prints how images become the input of the models."""
    cases: dict[str, list[str]] = {}
    jobs = suite.jobs(root, lambda case, images: cases.setdefault(images, []).append(case))
    for text, names in cases.items():
        print_line(f"images  {text}" + (f": {', '.join(names)}" if len(cases) > 1 else ""))
    run_jobs(suite.title, jobs, run, workers, checkpoint)


def run_jobs(
    title: str, jobs: list[Job], run: opt.RunOptions, workers: int = 0, checkpoint: float = 60.0
) -> None:
    """Run what the store does not have and print the table; exit code 1 if a run failed."""
    from ..experiment import execute
    from ..experiment.results import select
    from ..experiment.store import Store

    store, begin = Store(run.store), time.perf_counter()
    with show_runs(jobs) as on_event:
        done = execute.run_jobs(
            jobs,
            store,
            parallel=run.jobs,
            ray=run.ray,
            force=run.force,
            options=execute.Options(run.threads, run.device, workers, checkpoint),
            on_event=on_event,
        )
    found = (store.get(key) for key in dict.fromkeys(job.run.key for job in jobs))
    print_line(f"\n{title}: mean accuracy over domains of the predictions made on the way\n")
    print_methods(select((record for record in found if record), jobs[0].tags.get("suite")))
    print_line(
        f"\n{len(done.records)} runs in {time.perf_counter() - begin:.0f} s, {done.skipped} were"
        f" there already. Records: {os.path.join(run.store, 'records')}"
    )
    for record in done.failed:
        last = record.error.strip().splitlines()[-1] if record.error else "unknown"
        name = f"{record.tags.get('case')} {record.tags.get('label')} ({record.key})"
        print_line(f"failed: {name}: {last}")
    if done.failed:
        raise typer.Exit(1)
