"""The `fretta` command as a user types it."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

from fretta.cli import main


def fretta(
    *arguments: Any, cwd: Path | None = None, columns: int = 120
) -> subprocess.CompletedProcess[str]:
    """In this process: torch is not imported once more."""
    words, code = [str(a) for a in arguments], 0
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["fretta", *words]),
        mock.patch.dict(os.environ, {"COLUMNS": str(columns)}),
        contextlib.chdir(cwd or "."),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("default")
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def fretta_alone(*arguments: Any, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """In a process of its own, where nothing has been imported yet."""
    return subprocess.run(
        [sys.executable, "-m", "fretta.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "120", "OMP_NUM_THREADS": "1"},
    )
