"""The application and what it prints."""

from __future__ import annotations

import errno
import io
import shlex
import signal
import sys
from typing import Annotated, Any

import typer
import typer.core
from rich.console import Console, ConsoleDimensions
from rich.markup import escape
from rich.table import Table

from .._util import check_interrupt, raise_interrupt
from ..errors import FrettaError
from ..memory import keep_memory

PIPE_COLUMNS = 10_000  # where output is no terminal: a row of a table stays one line
# What to do after Ctrl-C, by command.
_RESUME = "to go on: {command}"
_KEPT = "what is done is kept; " + _RESUME
_LOST = "nothing was kept"
AFTER_INTERRUPT = {
    **dict.fromkeys(("run", "tune", "evaluate", "demo", "sensitivity", "corrupt"), _KEPT),
    **dict.fromkeys(("train", "adapt"), _RESUME),
    **dict.fromkeys(("redundancy", "mechanism", "tsne", "compare", "diagnose"), _LOST),
}


class Commands(typer.core.TyperGroup):
    """Commands that end in one line on Ctrl-C and on errors of the file system."""

    def invoke(self, ctx: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):  # what a terminal cannot show is escaped
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # see __main__.py
            signal.signal(signal.SIGINT, raise_interrupt)
        try:
            return self._invoke(ctx)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends at once
            print_error(after_interrupt(ctx.invoked_subcommand, sys.argv[1:]), "stopped")
            raise typer.Exit(130) from None
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader, such as `head`, went away
                raise
            place = "" if error.filename is None else f": {str(error.filename)!r}"
            raise FrettaError(f"{error.strerror or error}{place}") from error

    def _invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.Exit:  # said already, by a group inside this one
            raise
        except Exception:
            check_interrupt()
            raise


def after_interrupt(name: str | None, arguments: list[str]) -> str:
    """What to print when the command `name` was interrupted."""
    given = [a for a in arguments if a not in ("--force", "--overwrite")]
    if name == "adapt" and "--resume" not in given:
        given.append("--resume")
    text = AFTER_INTERRUPT.get(str(name), "").format(command=shlex.join(["fretta", *given]))
    again = " (--force would begin again, also what was there before)"
    return text + (again if text and "--force" in arguments else "")


class _Console(Console):
    @property  # type: ignore[misc]  # rich has a setter, which is not used
    def size(self) -> ConsoleDimensions:
        size = super().size
        return size if self.file.isatty() else ConsoleDimensions(PIPE_COLUMNS, size.height)


app = typer.Typer(
    cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False
)
console = _Console()


def print_error(message: str, kind: str = "error") -> None:
    line = f"[bold red]{kind}{':' if message else ''}[/] {escape(message)}"
    Console(stderr=True).print(line, highlight=False, soft_wrap=True)


def print_line(line: str) -> None:
    """One line as it is: paths in it can be copied."""
    console.print(_plain(line), highlight=False, soft_wrap=True)


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    console.print(make_table(columns, rows))


def make_table(columns: list[str], rows: list[list[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(_plain, row))
    return table


def _plain(text: str) -> str:
    """No markup. Bytes of a name that are not UTF-8 are escaped: an output may refuse them."""
    return escape(text.encode("utf-8", "backslashreplace").decode())


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"fretta {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Online test-time adaptation of PyTorch image classifiers."""
    keep_memory()
