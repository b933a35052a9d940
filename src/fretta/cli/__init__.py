"""The `fretta` command: wiring only. One module per group of commands."""

from __future__ import annotations

import sys
from itertools import zip_longest

from ..errors import FrettaError
from . import adapt, analyze, bench, compare, data, demo, models, report, run
from .app import app, fail
from .words import in_options, show_warnings_in_a_line

__all__ = ["app", "main"]

models.register(app)
data.register(app)
demo.register(app)
run.register(app)
adapt.register(app)
analyze.register(app)
compare.register(app)
report.register(app)
bench.register(app)


def main() -> None:
    """Entry point: errors that fretta raises on purpose end in one line that names options."""
    show_warnings_in_a_line(sys.argv[1:])
    try:
        app(with_ray_address(sys.argv[1:]))
    except FrettaError as error:
        fail(in_options(str(error), sys.argv[1:]))
        sys.exit(2)


def with_ray_address(arguments: list[str]) -> list[str]:
    """`--ray` may stand without an address: a cluster is then started on this machine."""
    result: list[str] = []
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue="--"):
        result.append(argument)
        if argument == "--ray" and following.startswith("-"):
            result.append("local")
    return result
