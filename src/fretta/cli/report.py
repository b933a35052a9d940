"""`fretta report` and `fretta watch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .app import say

Records = Annotated[str, typer.Argument(help="Folder or fsspec URL of the results.")]
Suite = Annotated[str | None, typer.Option(help="Only this suite.")]
Paper = Annotated[bool, typer.Option("--paper/--no-paper", help="The paper's numbers beside ours.")]


def register(app: typer.Typer) -> None:
    for command in (report, watch):
        app.command()(command)


def report(
    store: Records = "results",
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("report"),
    suite: Suite = None,
    paper: Paper = True,
    form: Annotated[
        list[str] | None,
        typer.Option(
            "--format", help="md, latex, csv, svg, png (several times); default: all of them."
        ),
    ] = None,
) -> None:
    """Every table and figure of a store, as one HTML page and as files for a paper."""
    from ..experiment.store import Store
    from ..report.write import FORMATS, write_report

    written = write_report(
        Store(store), out, suite=suite, paper=paper, formats=tuple(form or FORMATS)
    )
    made = written.report
    for headline in made.headlines:
        say(f"{headline.suite} ({headline.title}): {headline.sentence}")
    failed = sum(r.status != "done" for r in made.data.runs)
    if not made.data.records:
        say(f"No sound record in {store!r}; `fretta run smoke --store {store}` makes some.")
    if failed:
        say(f"{failed} runs failed; the page lists them.")
    for line in made.data.damaged:
        say(f"damaged, will be redone by `fretta run`: {line}")
    if made.figures_note:
        say(made.figures_note)
    say(
        f"{written.page}: {len(made.data.runs)} runs, {len(made.tables)} tables,"
        f" {len(made.figures)} figures, {len(written.files)} files"
    )


def watch(
    store: Records = "results",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8765,
    suite: Suite = None,
    paper: Paper = True,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
) -> None:
    """Serve the report of a store on this machine; it follows runs as they end."""
    from ..experiment.store import Store
    from ..report.watch import Watched, serve

    with serve(Watched(Store(store), suite, paper), port) as server:
        url = f"http://{server.server_address[0]!s}:{server.server_address[1]}/"
        say(f"Watching {store} at {url} (Ctrl-C ends it)")
        if browser:
            import webbrowser

            webbrowser.open(url)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            say("\nstopped")
