"""`fretta adapt`: a model, a folder of images, and everything written down."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn

from ..errors import ConfigError
from .app import console, say
from .specs import (
    Fit,
    Head,
    Mean,
    Model,
    NumClasses,
    Pretrained,
    Prior,
    Size,
    Std,
    Weights,
    numbers,
    settings_of,
)
from .words import in_options

if TYPE_CHECKING:
    from ..deploy import AdaptResult
    from ..deploy.progress import Progress as RunProgress

EVERY = 10.0  # seconds between lines where there is no terminal


def register(app: typer.Typer) -> None:
    app.command()(adapt)


def adapt(
    model: Model,
    data: Annotated[
        str,
        typer.Option(help="A folder, a text file with a path per line, or - for paths on stdin."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for predictions, health, weights, summary.")],
    method: Annotated[str, typer.Option(help="See `fretta list`.")] = "g-fret",
    weights: Weights = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="A name per line, a JSON list, or {number: name} / config.json."),
    ] = None,
    guard: Annotated[
        str, typer.Option(help="On harm: rollback, skip, reset, warn, or none.")
    ] = "rollback",
    batch_size: Annotated[int, typer.Option(help="Images per step.")] = 64,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Hyper-parameter, as lr=1e-3 (several times).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a run stopped.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in --out.")] = False,
    shuffle: Annotated[
        bool | None,
        typer.Option(
            "--shuffle/--no-shuffle",
            help="Default: a folder with folders of images is shuffled, all else keeps its order.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the shuffle.")] = 0,
    limit: Annotated[int | None, typer.Option(help="Only so many images.")] = None,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out files that cannot be read.")
    ] = False,
    compare_source: Annotated[
        bool,
        typer.Option(
            "--compare-source",
            help="Source model on every image, not one in eight: one more forward per batch."
            " Always so where folders name the classes.",
        ),
    ] = False,
    prior: Prior = None,
    num_classes: NumClasses = None,
    pretrained: Pretrained = False,
    head: Head = None,
    size: Size = None,
    mean: Mean = None,
    std: Std = None,
    fit: Fit = None,
    alpha: Annotated[
        str, typer.Option(help="Transparent pixels: on white, or drop (what lies below).")
    ] = "white",
    source: Annotated[
        Path | None, typer.Option(help="Folder of source images, for methods that need some.")
    ] = None,
    statistics: Annotated[
        int, typer.Option(help="Latest images that give the written weights their statistics.")
    ] = 512,
    root: Annotated[
        Path | None, typer.Option(help="Folder the paths of a list are relative to, and stay in.")
    ] = None,
    allow_outside: Annotated[
        bool, typer.Option("--allow-outside", help="Follow paths and links that lead elsewhere.")
    ] = False,
    null: Annotated[
        bool, typer.Option("--null", help="Paths are separated by NUL, as find -print0 does.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, ...; default: cuda if there is one.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Threads that decode images.")] = 2,
    checkpoint: Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")] = 10.0,
) -> None:
    """Adapt a model along your images; predictions, health, weights and a summary in --out."""
    from ..deploy import AdaptOptions, adapt_images
    from ..estimate.prior import read_prior

    if resume and force:
        raise ConfigError("--resume goes on and --force starts anew; give one of them")
    options = AdaptOptions(
        model=model,
        data=data,
        out=out,
        method=method,
        weights=weights,
        num_classes=num_classes,
        pretrained=pretrained,
        hyperparameters=settings_of(set_ or []),
        guard=guard,
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        limit=limit,
        labels=labels,
        size=size,
        mean=tuple(numbers(mean, "--mean")) if mean else None,
        std=tuple(numbers(std, "--std")) if std else None,
        fit=fit,
        alpha=alpha,
        head=head,
        source=source,
        compare_source=compare_source,
        prior=None if prior is None else read_prior(prior),
        statistics=statistics,
        skip_unreadable=skip_unreadable,
        root=root,
        allow_outside=allow_outside,
        null=null,
        device=device,
        workers=workers,
        checkpoint_seconds=checkpoint,
    )
    with _signals() as received, _progress() as show:
        result = adapt_images(
            options,
            resume=resume,
            force=force,
            stopped=lambda: bool(received),
            on_start=show.start,
            on_progress=show.progress,
            on_note=lambda text: say(f"note: {in_options(text, ['adapt'])}"),
        )
    _tell(result)
    if received and not result.complete:
        raise typer.Exit(128 + received[0])


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM finish the batch and write everything; a second one ends at once."""
    received: list[int] = []

    def note(number: int, _: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        say("stopping after this batch; once more to stop at once")

    try:
        old = {n: signal.signal(n, note) for n in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread
        yield received
        return
    try:
        yield received
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


class _Show:
    """A bar for each phase, with the time left in all; a line now and then elsewhere."""

    def __init__(self, bar: Progress | None) -> None:
        self.bar, self.task = bar, None if bar is None else bar.add_task("", total=None, facts="")
        self.told = time.monotonic()

    def start(self, setup: Any, counts: Any) -> None:
        say(f"model   {setup.case.spec}, {len(setup.case.labels.names):,} classes")
        say(f"labels  {setup.case.labels.origin}")
        say(f"images  {setup.case.preprocessing.text()}")
        if counts.files:
            say(f"resumed after {counts.files:,} images")
        self.told = time.monotonic()

    def progress(self, pace: RunProgress) -> None:
        of = "" if pace.total is None else f" of {pace.total:,}"
        left = "" if pace.left is None else f", {duration(pace.left)} left"
        facts = f"{pace.done:,}{of} images, {pace.rate:.3g}/s{left}"
        if self.bar is not None and self.task is not None:
            self.bar.update(
                self.task,
                description=pace.phase,
                completed=pace.done,
                total=pace.total,
                facts=facts,
            )
        elif time.monotonic() - self.told >= EVERY:
            self.told = time.monotonic()
            say(f"{pace.phase}: {facts}")


def duration(seconds: float) -> str:
    """ "5 s", "3 min", "2.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def _progress() -> Iterator[_Show]:
    if not console.is_terminal:
        yield _Show(None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[facts]}"))
    with Progress(*columns, console=console) as bar:
        yield _Show(bar)


def _tell(result: AdaptResult) -> None:
    from ..deploy.page import percent

    counts = result.counts
    left_out = f", {counts.unreadable:,} files unreadable" if counts.unreadable else ""
    batches = f"{counts.batches:,} batch" + ("" if counts.batches == 1 else "es")
    say(f"\n{counts.images:,} images in {batches}{left_out}")
    if result.accuracy is not None:
        before, after = percent(result.source_accuracy), percent(result.accuracy)
        say(f"accuracy: {before} before, {after} after")
    if result.changed is not None:
        say(f"changed: {percent(result.changed)} of {counts.compared:,} predictions compared")
    for line in result.verdict_lines():
        say(line)
    if result.weights is not None:
        say(f"the written weights {result.weights}")
        if advice := result.weights.advice(counts.images):
            say(f"  {advice}")
    if not result.complete:
        say("stopped before the end; the same command with --resume continues")
    if counts.images:
        weights = ", weights" if result.weights is not None else ""
        say(f"wrote predictions, health{weights} and {result.out / 'summary.html'}")
