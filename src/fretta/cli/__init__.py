"""The `fretta` command. Each module holds some commands; they are registered here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import zip_longest

import typer

from ..errors import FrettaError
from . import adapt, analyze, compare, data, diagnose, models, report, run, serve
from .app import Commands, app, print_error
from .messages import name_options, print_warnings_in_one_line
from .options import with_options

__all__ = ["app", "main"]

COMMANDS: dict[str, Callable[..., None]] = {
    "list": models.list_methods,
    "info": models.info,
    "check": models.check,
    "doctor": data.doctor,
    "corrupt": data.corrupt,
    "train": data.train,
    "demo": report.demo,
    "run": run.run,
    "tune": run.tune,
    "evaluate": run.evaluate,
    "results": report.results,
    "diagnose": diagnose.diagnose,
    "adapt": adapt.adapt,
    "compare": compare.compare,
    "serve": serve.serve,
    "report": report.report,
    "watch": report.watch,
    "bench-steps": models.bench_steps,
}
for name, command in COMMANDS.items():
    app.command(name)(with_options(command))

analyses = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Measure what the figures of the report show; without options, on the embedded digits.",
)
for command in (analyze.redundancy, analyze.mechanism, analyze.tsne, analyze.sensitivity):
    analyses.command()(with_options(command))
app.add_typer(analyses, name="analyze")


def main() -> None:
    """Entry point: errors that fretta raises on purpose end in one line that names options."""
    arguments = sys.argv[1:]
    print_warnings_in_one_line(arguments)
    try:
        app(with_ray_address(arguments))
    except FrettaError as error:
        print_error(name_options(str(error), arguments))
        sys.exit(2)


def with_ray_address(arguments: list[str]) -> list[str]:
    """`--ray` may stand without an address: a cluster is then started on this machine."""
    result: list[str] = []
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue="--"):
        result.append(argument)
        if argument == "--ray" and following.startswith("-"):
            result.append("local")
    return result
