"""A table as a value; files and the page are renderings of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...experiment.results import mean_and_deviation
from ..significance import Ranking, Series, rank

DASH = "–"


@dataclass(frozen=True)
class Column:
    name: str
    kind: str = "percent"  # percent, points (signed), seconds, milliseconds, bytes, ratio, text
    group: str = ""  # spans neighbors of the same group
    ranked: bool = True  # the highest is marked, and what cannot be told from it
    long: str = ""  # in full, where the name is short


@dataclass(frozen=True)
class Cell:
    """Values are as a reader sees them: percent, points, seconds, bytes. None is a dash."""

    value: float | None = None
    std: float | None = None
    n: int = 0
    mark: str = ""  # best, tie, untested
    paper: float | None = None
    text: str = ""  # instead of a value
    keys: tuple[str, ...] = ()  # of the runs behind it
    failed: int = 0

    @property
    def difference(self) -> float | None:
        return None if self.value is None or self.paper is None else self.value - self.paper


@dataclass(frozen=True)
class Row:
    label: str
    cells: tuple[Cell, ...]
    setting: str = ""
    flags: tuple[str, ...] = ()
    section: str = ""  # rows of one section are compared with each other
    method: str = ""


@dataclass(frozen=True)
class Table:
    name: str  # stem of its files
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    suite: str = ""
    heading: str = ""  # title of the suite
    caption: str = ""
    notes: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()  # flags that all rows carry: told once, in the notes
    first: str = "method"  # heading of the rows

    @property
    def has_paper(self) -> bool:
        return any(c.paper is not None for r in self.rows for c in r.cells)

    @property
    def sections(self) -> list[str]:
        return list(dict.fromkeys(r.section for r in self.rows))


def own_flags(table: Table, row: Row) -> list[str]:
    """The flags that tell this row from others."""
    return [f for f in row.flags if f not in table.shared]


SCALE = {"percent": 100.0, "points": 100.0}


def cell_of(series: Series, kind: str, paper: float | None = None, failed: int = 0) -> Cell:
    """Mean and deviation over seeds."""
    keys = tuple(dict.fromkeys(k for s in series.values() for k in s.keys))
    if not series:
        return Cell(paper=paper, failed=failed, keys=keys)
    factor = SCALE.get(kind, 1.0)
    mean, deviation = mean_and_deviation([factor * s.value for s in series.values()])
    return Cell(mean, deviation, len(series), "", paper, "", keys, failed)


def marked(
    columns: Sequence[Column], series: Sequence[Sequence[Series]]
) -> tuple[list[list[str]], list[Ranking]]:
    """Marks per row and column, for the rows of one section."""
    rankings = [
        rank([row[j] for row in series]) if column.ranked else Ranking(("",) * len(series))
        for j, column in enumerate(columns)
    ]
    return [[r.marks[i] for r in rankings] for i in range(len(series))], rankings


def slug(*parts: str) -> str:
    """A file stem of any name: [a-z0-9-], never empty."""
    text = re.sub(r"[^a-z0-9]+", "-", "-".join(filter(None, parts)).lower()).strip("-")
    return text[:80].strip("-") or "table"


def show(value: float | None, kind: str, std: float | None = None) -> str:
    """As printed; deviation with as many digits."""
    if value is None:
        return DASH
    if kind in ("percent", "points"):
        text = f"{value:+.2f}" if kind == "points" else f"{value:.2f}"
        return text + (f" ± {std:.2f}" if std is not None else "")
    if kind == "bytes":
        return f"{value / 2**20:.0f}"
    if kind == "ratio":
        return f"{value:.2f}"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}"
