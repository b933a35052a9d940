"""The `fretta` command: wiring only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from .errors import FrettaError

app = typer.Typer(
    help="Online test-time adaptation of PyTorch image classifiers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
console = Console()


def main() -> None:
    """Entry point: errors that fretta raises on purpose end in one line, not in a traceback."""
    try:
        app()
    except FrettaError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {_plain(str(error))}", highlight=False)
        sys.exit(2)


def _plain(text: str) -> str:
    """Text for rich in which [..] is not markup."""
    return text.replace("[", r"\[")


def _version(wanted: bool) -> None:
    if wanted:
        from . import __version__

        typer.echo(f"fretta {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Online test-time adaptation of PyTorch image classifiers."""


@app.command("list")
def list_command() -> None:
    """The methods: what each does, needs, and costs per batch (F forwards, B backwards)."""
    from .methods import REGISTRY

    table = Table(box=None, pad_edge=False)
    for column in ("method", "passes", "needs", "what it does"):
        table.add_column(column, overflow="fold")
    for key, method in sorted(REGISTRY.items()):
        needs = ", ".join(sorted(need.name.lower() for need in method.needs)) or "-"
        table.add_row(key, method.passes, needs, method.summary)
    console.print(table)


@app.command()
def check(
    model: Annotated[
        str, typer.Argument(help="timm:NAME, torchvision:NAME, hf:FOLDER or module:factory")
    ],
    weights: Annotated[
        Path | None, typer.Option(help="A .safetensors or tensors-only torch file.")
    ] = None,
    num_classes: Annotated[int | None, typer.Option(help="Size of the head.")] = None,
    head: Annotated[str | None, typer.Option(help="Name of the head, if it is not found.")] = None,
    size: Annotated[
        int | None, typer.Option(help="Image size; the model's own if not given.")
    ] = None,
) -> None:
    """Look at a model: the head, the norm layers, which methods fit and why not."""
    import torch

    from .inspection import input_size, inspect
    from .models import load

    net = load(model, weights=weights, num_classes=num_classes)
    channels, height, width = input_size(net)
    seen = inspect(net, torch.rand(2, channels, size or height, size or width), head)
    norms = ", ".join(f"{n} {kind}" for kind, n in seen.norms.items()) or "none"
    console.print(
        f"model     {model} ({seen.model}, {seen.parameters:,} parameters)", highlight=False
    )
    console.print(f"classes   {seen.classes}", highlight=False)
    found = (
        f"{seen.head} ({seen.features} features)"
        if seen.head
        else f"not found: {seen.head_problem}"
    )
    console.print(f"head      {_plain(found)}", highlight=False)
    console.print(f"norms     {norms}\n", highlight=False)
    table = Table(box=None, pad_edge=False)
    for column in ("method", "fits", "note"):
        table.add_column(column, overflow="fold")
    for fit in seen.fits:
        table.add_row(fit.method, "[green]yes[/]" if fit.fits else "[red]no[/]", _plain(fit.note))
    console.print(table)


if __name__ == "__main__":
    main()
