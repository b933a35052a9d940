"""The `fretta` command: wiring only. One module per group of commands."""

from __future__ import annotations

import sys

from ..errors import FrettaError
from . import data, models, run
from .app import app, fail

__all__ = ["app", "main"]

models.register(app)
data.register(app)
run.register(app)


def main() -> None:
    """Entry point: errors that fretta raises on purpose end in one line, not in a traceback."""
    try:
        app()
    except FrettaError as error:
        fail(str(error))
        sys.exit(2)
