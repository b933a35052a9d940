"""`fretta adapt`: adapt a model along a folder of images and write what happened."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn

from ..errors import ConfigError
from .app import console, print_line
from .messages import name_options
from .options import (
    BatchSize,
    Decoders,
    Device,
    Labels,
    ModelOptions,
    Pretrained,
    Prior,
    Seed,
    Set,
    SkipUnreadable,
    SourceFolder,
    hyperparameters,
)

if TYPE_CHECKING:
    from ..deploy import Outcome
    from ..deploy.pace import Pace

EVERY = 10.0  # seconds between lines where there is no terminal


@dataclass(frozen=True)
class CommandOptions:
    """Named as the fields of Plan."""

    data: Annotated[
        str,
        typer.Option(help="A folder, a text file with a path per line, or - for paths on stdin."),
    ]
    out: Annotated[Path, typer.Option(help="Folder for predictions, health, weights, summary.")]
    method: Annotated[str, typer.Option(help="See `fretta list`.")] = "g-fret"
    labels: Labels = None
    guard: Annotated[str, typer.Option(help="On harm: rollback, skip, reset, warn, or none.")] = (
        "rollback"
    )
    batch_size: BatchSize = 64
    shuffle: Annotated[
        bool | None,
        typer.Option(
            "--shuffle/--no-shuffle",
            help="Default: a folder with folders of images is shuffled, all else keeps its order.",
        ),
    ] = None
    seed: Seed = 0
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many images.")] = None
    skip_unreadable: SkipUnreadable = False
    compare_source: Annotated[
        bool,
        typer.Option(
            "--compare-source",
            help="Source model on every image, not one in eight: one more forward per batch."
            " Always so where folders name the classes.",
        ),
    ] = False
    alpha: Annotated[
        str, typer.Option(help="Transparent pixels: on white, or drop (what lies below).")
    ] = "white"
    source: SourceFolder = None
    statistics: Annotated[
        int, typer.Option(min=1, help="Latest images that give the weights their statistics.")
    ] = 512
    root: Annotated[
        Path | None, typer.Option(help="Folder the paths of a list are relative to, and stay in.")
    ] = None
    allow_outside: Annotated[
        bool, typer.Option("--allow-outside", help="Follow paths and links that lead elsewhere.")
    ] = False
    null: Annotated[
        bool, typer.Option("--null", help="Paths are separated by NUL, as find -print0 does.")
    ] = False
    device: Device = None
    workers: Decoders = 2


def adapt(
    model: ModelOptions,
    options: CommandOptions,
    pretrained: Pretrained = False,
    set_: Set = None,
    prior: Prior = None,
    checkpoint: Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")] = 10.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a run stopped.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in --out.")] = False,
) -> None:
    """Adapt a model along your images; predictions, health, weights and a summary in --out."""
    from ..deploy import Plan, Session
    from ..estimate.prior import read_prior

    if resume and force:
        raise ConfigError("--resume goes on and --force starts anew; give one of them")
    plan = Plan(
        **model.arguments(),
        **vars(options),
        pretrained=pretrained,
        hyperparameters=hyperparameters(set_),
        prior=None if prior is None else read_prior(prior),
        checkpoint_seconds=checkpoint,
    )
    with _signals() as received, _progress() as show:
        session = Session(
            plan,
            resume=resume,
            force=force,
            stopped=lambda: bool(received),
            on_start=show.start,
            on_progress=show.progress,
            on_remark=lambda text: print_line(f"note: {name_options(text, ['adapt'])}"),
        )
        outcome = session.run()
    _print_outcome(outcome)
    if received and not outcome.complete:
        raise typer.Exit(128 + received[0])


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM end the run after the batch; a second one ends it at once."""
    received: list[int] = []

    def stop(number: int, _: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        print_line("stopping after this batch; once more to stop at once")

    try:
        old = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM)}
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
        self.printed = time.monotonic()

    def start(self, opened: Any, tally: Any) -> None:
        print_line(f"model   {opened.spec}, {len(opened.labels.names):,} classes")
        print_line(f"labels  {opened.labels.origin}")
        print_line(f"images  {opened.preprocessing.text()}")
        if tally.files:
            print_line(f"resumed after {tally.files:,} images")
        self.printed = time.monotonic()

    def progress(self, pace: Pace) -> None:
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
        elif time.monotonic() - self.printed >= EVERY:
            self.printed = time.monotonic()
            print_line(f"{pace.phase}: {facts}")


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


def _print_outcome(outcome: Outcome) -> None:
    from ..deploy.html import percent

    t = outcome.tally
    left_out = f", {t.unreadable:,} files unreadable" if t.unreadable else ""
    batches = f"{t.batches:,} batch" + ("" if t.batches == 1 else "es")
    print_line(f"\n{t.images:,} images in {batches}{left_out}")
    if outcome.accuracy is not None:
        before, after = percent(outcome.source_accuracy), percent(outcome.accuracy)
        print_line(f"accuracy: {before} before, {after} after")
    if t.compared:
        print_line(
            f"changed: {percent(t.changed / t.compared)} of {t.compared:,} predictions compared"
        )
    for line in outcome.verdict_lines():
        print_line(line)
    done = outcome.exported
    if done is not None:
        print_line(f"the written weights {done.text()}")
        if done.advice(t.images):
            print_line(f"  {done.advice(t.images)}")
    if not outcome.complete:
        print_line("stopped before the end; the same command with --resume goes on")
    if t.images:
        weights = ", weights" if done is not None else ""
        print_line(f"wrote predictions, health{weights} and {outcome.out / 'summary.html'}")
