"""The application, its options, and how it speaks."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..memory import keep_memory

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
console = Console()


def fail(message: str) -> None:
    line = f"[bold red]error:[/] {escape(message)}"
    Console(stderr=True).print(line, highlight=False, soft_wrap=True)


def say(line: str) -> None:
    """One line, as it is: a path that is copied from it must be whole."""
    console.print(escape(line), highlight=False, soft_wrap=True)


def table(*columns: str) -> Table:
    """A table without frames; numbers are the caller's to align."""
    result = Table(box=None, pad_edge=False)
    for column in columns:
        result.add_column(column, overflow="fold")
    return result


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"fretta {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Online test-time adaptation of PyTorch image classifiers."""
    keep_memory()
