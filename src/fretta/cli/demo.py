"""`fretta demo`: the main job on the embedded data, and a page to look at."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from ..errors import MissingExtraError
from .analyze import mechanism_of, redundancy_of
from .app import say
from .asked import Asked
from .carry import carry_out
from .specs import Jobs, Where


def register(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    store: Where = "demo-output",
    jobs: Jobs = 2,
    force: Annotated[bool, typer.Option("--force", help="Repeat what is there.")] = False,
) -> None:
    """Run every method on handwritten digits under 15 corruptions and make a report."""
    from ..experiment.execute import Options
    from ..experiment.store import Store
    from ..experiment.suite import load_suite

    suite = load_suite("digits")
    carry_out(suite.title, suite.jobs(), store, jobs, None, force, Options())
    there = {analysis["kind"] for analysis in Store(store).analyses([])}
    asked = Asked(store=store)
    if force or "redundancy" not in there:
        redundancy_of(asked)
    if force or "mechanism" not in there:
        mechanism_of(asked)
    _page(store)
    say(f"Per corruption: fretta results {store} --level domains --method g-fret")
    say(
        "Next: fretta adapt --help (your model, your images); fretta check timm:resnet18; README.md"
    )


def _page(store: str) -> None:
    """The report beside the records; opened where there is somebody to see it."""
    from ..experiment.store import Store
    from ..report.write import write_report

    try:
        page = write_report(Store(store), Path(store) / "report").page
    except MissingExtraError as error:
        say(f"No page: {error}")
        return
    say(f"\nLook at it: {page}")
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.stdout.isatty() and (screen or sys.platform in ("darwin", "win32")):
        webbrowser.open(Path(page).resolve().as_uri())
