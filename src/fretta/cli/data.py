"""`fretta doctor`, `fretta corrupt` and `fretta train`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError
from .app import print_line
from .messages import name_options
from .options import DataRoot, DeviceName, Jobs, numbers
from .progress import progress_bar


def doctor(
    name: Annotated[
        str, typer.Argument(help="pacs, officehome, cifar10c, imagenetc, digits, ...; or a folder.")
    ],
    data: DataRoot = None,
) -> None:
    """Check a data set on disk: counts, classes, unreadable files; what is missing and where."""
    from ..data import doctor as examine
    from ..data import list_datasets

    if name not in list_datasets() and data is None and Path(name).is_dir():
        name, data = "folder", Path(name)
    with progress_bar("reading images") as advance:
        report = examine(name, data, progress=advance)
    for line in report.lines():
        print_line(name_options(line, ["doctor"]))
    if not report.ok:
        raise typer.Exit(1)


def severities(text: str) -> list[int]:
    """ "5", "1,3" or "1-5"."""
    try:
        low, dash, high = text.partition("-")
        found = list(range(int(low), int(high) + 1)) if dash else [int(s) for s in text.split(",")]
    except ValueError:
        found = []
    if not found or any(s not in range(1, 6) for s in found):
        raise ConfigError(f"--severity {text!r}; write 5, 1,3 or 1-5")
    return found


def corrupt(
    src: Annotated[Path, typer.Argument(help="A CIFAR folder, or a folder of images.")],
    dst: Annotated[Path, typer.Argument(help="Where the corrupted version goes.")],
    corruption: Annotated[
        str, typer.Option(help="Names with commas between; all: the 15, extra: the other four.")
    ] = "all",
    severity: Annotated[str, typer.Option(help="5, 1,3 or 1-5.")] = "1-5",
    jobs: Jobs = 1,
    seed: Annotated[int, typer.Option(help="Of the noise; results do not depend on --jobs.")] = 0,
    skip_unreadable: Annotated[
        bool, typer.Option(help="Leave out images that cannot be read, and list them.")
    ] = False,
) -> None:
    """Write the corrupted version of a data set; run again to continue where it stopped."""
    from ..data import corrupt_folder

    with progress_bar("corrupting") as advance:
        summary = corrupt_folder(
            src,
            dst,
            [name.strip() for name in corruption.split(",") if name.strip()],
            severities(severity),
            seed=seed,
            jobs=jobs,
            progress=advance,
            errors="skip" if skip_unreadable else "raise",
        )
    print_line(
        f"{summary.written:,} images written, {summary.kept:,} already there: {summary.folder}"
    )
    for line in summary.unreadable:
        print_line(f"unreadable, left out: {line}")


@dataclass(frozen=True)
class TrainOptions:
    """Named as in TrainConfig."""

    out: Annotated[
        Path, typer.Option(help="The .safetensors file to write; a card goes beside it.")
    ]
    target: Annotated[str | None, typer.Option(help="The domain left out, for domain sets.")] = None
    model: Annotated[str | None, typer.Option(help="timm:NAME, cifar:NAME, ...")] = None
    init: Annotated[
        str | None,
        typer.Option(help="Weights to start from: a file, efficientnet-lite0, pretrained."),
    ] = None
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over digits or CIFAR.")] = None
    iterations: Annotated[int | None, typer.Option(min=1, help="Steps on domain sets.")] = None
    batch_size: Annotated[int | None, typer.Option(min=2, help="Images per domain and step.")] = (
        None
    )
    lr: Annotated[float | None, typer.Option(min=0, help="Learning rate.")] = None
    schedule: Annotated[
        str, typer.Option(help="Of the learning rate on digits or CIFAR: cosine, one-cycle.")
    ] = "cosine"
    progressive: Annotated[
        str | None,
        typer.Option(help="Small images first: sizes over the run, such as 16,24,32. Faster."),
    ] = None
    cutout: Annotated[
        int, typer.Option(min=0, help="Side of a square of each image to paint over, in pixels.")
    ] = 0
    precision: Annotated[
        str | None, typer.Option(help="bfloat16: faster where the machine can.")
    ] = None
    half: Annotated[bool, typer.Option(help="Write weights in float16: half the file.")] = False
    size: Annotated[int | None, typer.Option(min=8, help="Image size in pixels.")] = None
    seed: Annotated[int, typer.Option(min=0, help="Of the weights and batches.")] = 0
    limit: Annotated[int | None, typer.Option(min=2, help="Images per domain, for a trial.")] = None
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode images.")] = 0
    device: DeviceName = "cpu"
    overwrite: Annotated[bool, typer.Option(help="Begin again, and replace an existing model.")] = (
        False
    )


def train(
    name: Annotated[str, typer.Argument(help="digits, cifar10, cifar100, pacs, officehome, ...")],
    options: TrainOptions,
    data: DataRoot = None,
) -> None:
    """Train a source model; run again to resume. Writes safetensors and a JSON card."""
    from ..experiment.train import TrainConfig, train_source

    given = vars(options)
    if options.progressive is not None:
        sizes = numbers(options.progressive, "--progressive")
        whole = tuple(int(size) if size.is_integer() else size for size in sizes)
        given = {**given, "progressive": whole}  # checked there
    config = TrainConfig(data=name, root=data, **given)
    with progress_bar("training") as advance:
        card = train_source(
            config,
            resume=not options.overwrite,
            progress=lambda now: advance(now.step, now.steps),
        )
    for split, accuracy in card.accuracy.items():
        print_line(f"{split:12} {accuracy:.2%}")
    print_line(f"wrote {options.out}")
