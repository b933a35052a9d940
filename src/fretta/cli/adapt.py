"""`fretta adapt`: adapt a model along a folder of images and write what happened."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn

from ..errors import ConfigError
from . import options as opt
from .app import console, print_line, print_table
from .messages import name_options

if TYPE_CHECKING:
    from ..deploy import AdaptOptions, AdaptResult
    from ..deploy.on_ray import StreamEnd
    from ..deploy.progress import Progress as RunProgress

EVERY = 10.0  # seconds between lines where there is no terminal


@dataclass(frozen=True)
class CommandOptions:
    """Named as the fields of AdaptOptions."""

    data: Annotated[
        list[str],
        typer.Option(
            help="A folder, a text file with a path per line, or - for paths on stdin. Several"
            " times with --ray."
        ),
    ]
    out: Annotated[Path, typer.Option(help="Folder for predictions, health, weights, summary.")]
    batch_size: opt.BatchSize = 64
    shuffle: Annotated[
        bool | None,
        typer.Option(
            "--shuffle/--no-shuffle",
            help="Default: a folder with folders of images is shuffled, all else keeps its order.",
        ),
    ] = None
    seed: opt.Seed = 0
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many images.")] = None
    skip_unreadable: opt.SkipUnreadable = False
    compare_source: Annotated[
        bool,
        typer.Option(
            "--compare-source",
            help="Source model on every image, not one in eight: one more forward per batch."
            " Always so where folders name the classes.",
        ),
    ] = False
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
    workers: opt.Decoders = 2


def adapt(
    model: opt.ModelOptions,
    options: CommandOptions,
    adaptation: opt.AdaptationOptions,
    checkpoint: Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")] = 10.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a run stopped.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in --out.")] = False,
    answers: Annotated[
        Path | None,
        typer.Option(help="label-me.csv of the run in --out, filled in: its verdict, and no run."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            help="Each --data is a stream of its own on Ray, with a folder in --out: auto or an"
            " address; alone or local: start it here."
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Torch threads; default: all cores, with --ray 1.")
    ] = None,
) -> None:
    """Adapt a model along your images; predictions, health, weights and a summary in --out."""
    from ..deploy import AdaptOptions, adapt_images

    if ray is None and len(options.data) > 1:
        raise ConfigError(
            f"--data is given {len(options.data)} times; one run is one stream: add --ray to run"
            " them side by side, or give a list of all images"
        )
    if resume and force:
        raise ConfigError("--resume continues and --force starts again; give one of them")
    given = AdaptOptions(
        **model.arguments(),
        **adaptation.arguments(),
        **{**vars(options), "data": options.data[0]},
        checkpoint_seconds=checkpoint,
    )
    if answers is not None:
        from ..deploy.label_me import answer_run

        if resume or force or ray:
            raise ConfigError(
                "--answers is about the run in --out; --resume, --force and --ray make one"
            )
        print_line(f"Adapting {answer_run(given, answers)}.")
        return
    if ray is not None:
        _adapt_streams(given, options.data, ray, threads=threads or 1, resume=resume, force=force)
        return
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    with _signals() as received, _progress() as show:
        result = adapt_images(
            given,
            resume=resume,
            force=force,
            stopped=lambda: bool(received),
            on_start=show.start,
            on_progress=show.progress,
            on_note=lambda text: print_line(f"note: {name_options(text, ['adapt'])}"),
        )
    _print_result(result)
    if received and not result.complete:
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

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    old = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM)}
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

    def start(self, setup: Any, counts: Any) -> None:
        case, labels = setup.case, setup.case.labels
        print_line(f"model   {case.spec}, {len(labels.names):,} classes\nlabels  {labels.origin}")
        print_line(f"images  {case.preprocessing.text()}")
        if counts.files:
            print_line(f"resumed after {counts.files:,} images")
        self.printed = time.monotonic()

    def progress(self, pace: RunProgress) -> None:
        of = "" if pace.total is None else f" of {pace.total:,}"
        left = "" if pace.left is None else f", {duration(pace.left)} left"
        facts = f"{pace.done:,}{of} images, {pace.rate:.3g}/s{left}"
        if self.bar is not None and self.task is not None:
            now = {"description": pace.phase, "completed": pace.done, "total": pace.total}
            self.bar.update(self.task, **now, facts=facts)  # type: ignore[arg-type]
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


def _print_result(result: AdaptResult) -> None:
    from ..deploy.page import percent

    counts = result.counts
    left_out = f", {counts.unreadable:,} files unreadable" if counts.unreadable else ""
    batches = f"{counts.batches:,} batch" + ("" if counts.batches == 1 else "es")
    print_line(f"\n{counts.images:,} images in {batches}{left_out}")
    if result.accuracy is not None:
        before, after = percent(result.source_accuracy), percent(result.accuracy)
        print_line(f"accuracy: {before} before, {after} after")
    if result.changed is not None:
        print_line(
            f"changed: {percent(result.changed)} of {counts.compared:,} predictions compared"
        )
    for line in result.verdict_lines():
        print_line(line)
    if result.weights is not None:
        print_line(f"the written weights {result.weights}")
        if advice := result.weights.advice(counts.images):
            print_line(f"  {advice}")
    if not result.complete:
        print_line("stopped before the end; the same command with --resume continues")
    if counts.images:
        weights = ", weights" if result.weights is not None else ""
        print_line(f"wrote predictions, health{weights} and {result.out / 'summary.html'}")


# ---- on a Ray cluster ---------------------------------------------------------------------------


def _adapt_streams(options: AdaptOptions, data: Sequence[str], ray: str, **how: Any) -> None:
    """Run them all and print the table; exit code 1 if a stream failed."""
    from ..deploy.on_ray import adapt_on_ray

    lines = _Lines(len(data))
    ends = adapt_on_ray(options, data, ray, on_progress=lines.progress, on_end=lines.end, **how)
    print_line("")
    columns = ["stream", "images", "unreadable", "changed", "accuracy before", "after", "adapting"]
    print_table(columns, [_row(end) for end in ends])
    failed = sum(bool(end.error) for end in ends)
    if failed:
        print_line(
            f"\n{failed} of {len(ends)} streams failed; what they did is kept, and the same command"
            " with --resume continues them"
        )
        raise typer.Exit(1)
    print_line(f"\nwrote {len(ends)} folders in {options.out}; summary.html in each is its page")


class _Lines:
    """What is printed while streams run."""

    def __init__(self, streams: int) -> None:
        self.streams, self.ended = streams, 0
        self.running: dict[str, int] = {}
        self.notes: set[str] = set()
        self.printed = time.monotonic()

    def progress(self, name: str, done: int, _: int) -> None:
        self.running[name] = done
        if time.monotonic() - self.printed >= EVERY:
            self.printed = time.monotonic()
            facts = ", ".join(f"{n} {done:,}" for n, done in sorted(self.running.items()))
            print_line(f"images so far: {facts}")

    def end(self, end: StreamEnd) -> None:
        self.ended += 1
        self.running.pop(end.name, None)
        images = f"{end.result.get('images', 0):,} images"
        state = f"failed: {end.error}" if end.error else images + (", as before" * end.there)
        print_line(f"[{self.ended}/{self.streams}] {end.name}: {name_options(state, ['adapt'])}")
        for note in end.notes:  # most are the same for all streams
            if note not in self.notes:
                self.notes.add(note)
                print_line(f"note: {name_options(note, ['adapt'])}")


def _row(end: StreamEnd) -> list[str]:
    from ..deploy.page import percent

    if end.error:
        return [end.name, "failed", *[""] * 5]
    result = end.result
    counts = [f"{result[name]:,}" for name in ("images", "unreadable")]
    shares = [percent(result[name]) for name in ("changed", "source_accuracy", "accuracy")]
    return [end.name, *counts, *shares, result["verdict"]]
