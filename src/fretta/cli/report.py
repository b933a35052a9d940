"""`fretta results`, `fretta report`, `fretta watch` and `fretta demo`."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ConfigError, FrettaError, MissingExtraError
from .analyze import AnalysisOptions, mechanism, redundancy
from .app import print_line
from .options import Force, Jobs, RunOptions, StoreFolder, check_file
from .run import run_suite
from .tables import print_rows

Records = Annotated[str, typer.Argument(help="Folder or fsspec URL of the results.")]
Suite = Annotated[str | None, typer.Option(help="Only this suite.")]
Paper = Annotated[bool, typer.Option("--paper/--no-paper", help="The paper's numbers beside ours.")]


def results(
    store: Records = "results",
    suite: Suite = None,
    case: Annotated[str | None, typer.Option(help="Only this case.")] = None,
    method: Annotated[str | None, typer.Option(help="Only this method or label.")] = None,
    status: Annotated[str | None, typer.Option(help="done or failed.")] = None,
    level: Annotated[str, typer.Option(help="methods, runs or domains.")] = "methods",
    form: Annotated[str, typer.Option("--format", help="table, csv, json or parquet.")] = "table",
    out: Annotated[Path | None, typer.Option(help="Write to this file.")] = None,
) -> None:
    """List, filter and export what a store holds."""
    from ..experiment.results import FORMATS, LEVELS, export, rows_of, select
    from ..experiment.store import Store

    if out is not None and form == "table":
        form = out.suffix.removeprefix(".")  # a file is no table; its name tells the format
        if form not in FORMATS:
            raise ConfigError(
                f"--out {str(out)!r} has no known format; end it in .csv, .json or .parquet, or"
                " give --format"
            )
    for option, value, valid in (
        ("--format", form, FORMATS),
        ("--status", status or "done", ("done", "failed")),
        ("--level", level, LEVELS),
    ):
        if value not in valid:
            raise ConfigError(f"{option} {value!r} is unknown; choose from {', '.join(valid)}")
    check_file(out, "--out")
    damaged: list[str] = []
    records = list(Store(store).records(damaged))
    chosen = select(records, suite, case, method, status)
    if not chosen and not damaged:
        raise FrettaError(_no_match(store, records, suite, case, method, status))
    rows = rows_of(chosen, level)
    if form == "table":
        print_rows(rows, level)
    else:
        text = export(rows, form, out)
        if text is not None:
            typer.echo(text, nl=False)
    for line in damaged:
        print_line(f"damaged, will be redone by `fretta run`: {line}")


def _no_match(store: str, records: list[Any], *wanted: str | None) -> str:
    """Why no record is listed, and what there is."""
    if not records:
        return f"{store!r} has no records; `fretta run smoke --store {store}` makes some"
    there = {
        "--suite": {r.tags.get("suite") for r in records},
        "--case": {r.tags.get("case") for r in records},
        "--method": {r.tags.get("label") for r in records} | {r.run["method"] for r in records},
        "--status": {r.status for r in records},
    }
    given = [(o, w) for o, w in zip(there, wanted, strict=True) if w is not None]
    for option, value in given:
        if value not in there[option]:
            found = ", ".join(sorted(map(str, there[option])))
            return f"{store!r} has no record with {option} {value!r}; it has {found}"
    return f"{store!r} has no record with " + " and ".join(f"{o} {v!r}" for o, v in given)


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

    found = Store(store)
    if not found.keys() and not found.analyses([]):
        raise FrettaError(_no_match(store, []))
    written = write_report(found, out, suite=suite, paper=paper, formats=tuple(form or FORMATS))
    made = written.report
    for headline in made.headlines:
        print_line(f"{headline.suite} ({headline.title}): {headline.sentence}")
    failed = sum(r.status != "done" for r in made.data.runs)
    if not made.data.records:
        print_line(f"No sound record in {store!r}; `fretta run` makes some.")
    if failed:
        print_line(f"{failed} runs failed; the page lists them.")
    for line in made.data.damaged:
        print_line(f"damaged, will be redone by `fretta run`: {line}")
    if made.figures_note:
        print_line(made.figures_note)
    print_line(
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
        print_line(f"Watching {store} at {url} (Ctrl-C ends it)")
        if browser:
            webbrowser.open(url)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print_line("\nstopped")


def demo(store: StoreFolder = "demo-output", jobs: Jobs = 2, force: Force = False) -> None:
    """Run the paper's methods on handwritten digits under 15 corruptions and make a report."""
    from ..experiment.store import Store
    from ..experiment.suite import load_suite
    from ..report.write import write_report

    run_suite(load_suite("digits"), None, RunOptions(store=store, jobs=jobs, force=force))
    measured = {analysis["kind"] for analysis in Store(store).analyses([])}
    if force or "redundancy" not in measured:
        redundancy(run=AnalysisOptions(store=store))
    if force or "mechanism" not in measured:
        mechanism(run=AnalysisOptions(store=store))
    try:
        page = write_report(Store(store), Path(store) / "report").page
    except MissingExtraError as error:
        print_line(f"No page: {error}")
    else:
        print_line(f"\nLook at it: {page}")
        screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        if sys.stdout.isatty() and (screen or sys.platform in ("darwin", "win32")):
            webbrowser.open(Path(page).resolve().as_uri())
    print_line(f"Per corruption: fretta results {store} --level domains --method g-fret")
    print_line("Next: fretta adapt --help (your model, your images); fretta check timm:resnet18")
