"""A report as files: index.html, tables/*.md|tex|csv, figures/*.svg|png|csv."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .._util import replace_file
from ..errors import ConfigError, StoreError
from ..experiment.results import select
from ..experiment.store import Store
from .build import Report, build
from .render import comma_separated, latex, markdown
from .tables import Table

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
