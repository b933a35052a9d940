"""A report as files: index.html, tables/*.md|tex|csv, figures/*.svg|png|csv."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .._util import replace_file
from ..errors import ConfigError, MissingExtraError, StoreError
from ..experiment.results import select
from ..experiment.store import Store
from .data import ReportData
from .glance import Headline, headline
from .render import comma_separated, latex, markdown
from .setups import Setup, setups_of
from .table import Table
from .tables import tables_of

if TYPE_CHECKING:
    from .figures import Figure

TABLES: dict[str, tuple[str, Callable[[Table, bool], str]]] = {
    "md": (".md", markdown),
    "latex": (".tex", latex),
    "csv": (".csv", comma_separated),
}
FIGURES = ("svg", "png")
FORMATS = (*TABLES, *FIGURES)
_LISTING = "files.json"  # what an earlier report wrote: so that what is no more does not stay
_OURS = re.compile(r"(tables|figures)/[a-z0-9][a-z0-9-]*\.(md|tex|csv|svg|png)")


@dataclass
class Report:
    data: ReportData
    tables: list[Table] = field(default_factory=list)
    headlines: list[Headline] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    figures_note: str = ""

    def page(self, paper: bool = True, live: str = "", running: Sequence[str] = ()) -> str:
        """The HTML page; `live` is the version of the store that a watched page shows."""
        from .page import render

        return render(self, paper, live, running)


def build(store: Store, suite: str | None = None) -> Report:
    """Read the store and make tables, headlines and figures of it."""
    data = ReportData.read(store, suite)
    setups = setups_of(data.records, data.batches)
    shown = [s for s in setups if not s.suite.endswith("/tune")]  # a search is no answer
    figures, note = find_figures(data, setups)
    return Report(data, tables_of(setups), [headline(s) for s in shown], figures, note)


def find_figures(data: ReportData, setups: list[Setup]) -> tuple[list[Figure], str]:
    """All figures that the store has data for, and a note about those that are not drawn."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        missing = MissingExtraError(error.name or "matplotlib", "report", "drawing figures")
        return [], f"Figures are left out: {missing}"
    from . import figures

    return figures.find_figures(data, setups)


@dataclass
class Written:
    page: Path
    report: Report
    files: list[str] = field(default_factory=list)


def write_report(
    store: Store,
    out: Path,
    *,
    suite: str | None = None,
    paper: bool = True,
    formats: Collection[str] = FORMATS,
) -> Written:
    """Write everything; a file takes its place when it is complete."""
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown:
        raise ConfigError(f"--format {unknown[0]!r} is unknown; choose from {', '.join(FORMATS)}")
    if out.is_dir() and any(out.iterdir()) and not (out / _LISTING).is_file():
        raise ConfigError(
            f"--out {str(out)!r} holds other files, among which a report would be lost; name a new"
            " or an empty folder"
        )
    report = build(store, suite)
    if suite is not None and not report.data.records:
        there = sorted({str(r.tags.get("suite")) for r in select(store.records([]))})
        raise ConfigError(
            f"no records of suite {suite!r} in {store.where!r}; it has {', '.join(there) or 'none'}"
        )
    written = Written(out / "index.html", report)
    files = dict(_table_files(report.tables, paper, formats))
    for figure in report.figures:
        files |= _figure_files(figure, formats)
    try:
        for name, content in files.items():
            _put(out / name, content)
        # Last: figures may have found damaged details, which the page lists.
        _put(out / "index.html", encoded(report.page(paper)))
        _sweep(out, files)
    except OSError as error:
        raise StoreError(f"cannot write {str(out)!r}: {error.strerror or error}") from error
    written.files = ["index.html", *files]
    return written


def encoded(text: str) -> bytes:
    """Names come from JSON, where half a surrogate pair is possible; no encoding has it."""
    return text.encode("utf-8", "replace")


def _put(path: Path, content: bytes) -> None:
    if not path.exists() or path.read_bytes() != content:
        replace_file(path, content)


def _table_files(
    tables: Collection[Table], paper: bool, formats: Collection[str]
) -> dict[str, bytes]:
    return {
        f"tables/{table.name}{suffix}": encoded(make(table, paper))
        for name, (suffix, make) in TABLES.items()
        if name in formats
        for table in tables
    }


def _figure_files(figure: Figure, formats: Collection[str]) -> dict[str, bytes]:
    stem, made = f"figures/{figure.name}", {}
    if "svg" in formats:
        made[f"{stem}.svg"] = figure.svg_file()
    if "png" in formats:
        made[f"{stem}.png"] = figure.png()
    if "csv" in formats:
        made[f"{stem}.csv"] = encoded(figure.numbers.to_csv(index=False, lineterminator="\n"))
    return made


def _sweep(out: Path, files: Collection[str]) -> None:
    """Remove what an earlier report wrote here and this one did not; nothing else."""
    listing = out / _LISTING
    try:
        before = json.loads(listing.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = []
    for name in before if isinstance(before, list) else []:
        if isinstance(name, str) and _OURS.fullmatch(name) and name not in files:
            (out / name).unlink(missing_ok=True)
    _put(listing, json.dumps(sorted(files), indent=1).encode())
