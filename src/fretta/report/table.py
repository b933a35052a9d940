"""A table as values, and how its columns come from scores; render.py writes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from pandas import DataFrame, Series

from .setups import DIRTY, ORACLE, Setup
from .significance import Test, basis, rank

ALL_DIRTY = "All runs come from uncommitted code: they cannot be traced to a commit."
SHARED = {DIRTY: ALL_DIRTY, ORACLE: "All settings were tuned on target labels (oracle)."}


@dataclass
class Column:
    """A column. `cells` have, for each row of the table: value and std over seeds (in the unit that
    a reader sees, NaN if there is none), n, mark, paper, text instead of a value, keys of the runs
    behind it, failed."""

    name: str
    cells: DataFrame
    kind: str = "percent"  # percent, points (signed), seconds, milliseconds, bytes, ratio, text
    group: str = ""  # spans neighbors of the same group
    long: str = ""  # in full, where the name is short
    tests: list[Test] = field(default_factory=list)  # behind the marks


@dataclass
class Table:
    """A table. `rows` have label, setting, flags and section; only rows of one section are
    compared with each other."""

    name: str  # stem of its files
    title: str
    rows: DataFrame
    columns: list[Column]
    suite: str
    heading: str  # title of the suite
    caption: str
    notes: list[str]

    @property
    def shared(self) -> list[str]:
        """Flags that all rows have: the notes say them once, so that others stand out."""
        return [f for f in SHARED if len(self.rows) and all(f in x for x in self.rows["flags"])]

    @cached_property
    def lines(self) -> list[tuple[Any, list[Any]]]:
        """Each row with its cells."""
        columns = [list(column.cells.itertuples()) for column in self.columns]
        rows = enumerate(self.rows.itertuples())
        return [(row, [cells[number] for cells in columns]) for number, row in rows]

    @property
    def has_paper(self) -> bool:
        return any(column.cells["paper"].notna().any() for column in self.columns)


def table_of(
    name: str,
    title: str,
    rows: DataFrame,
    columns: list[Column],
    setup: Setup,
    caption: str,
    notes: Iterable[str],
) -> Table:
    table = Table(name, title, rows, columns, setup.suite, setup.heading, caption, [])
    below = [_mark_note(columns), *(SHARED[flag] for flag in table.shared), *notes]
    table.notes = [note for note in below if note]
    return table


def _mark_note(columns: Sequence[Column]) -> str:
    """What the marks mean, and which test decided on them."""
    seen = {mark for column in columns for mark in column.cells["mark"]}
    if "best" not in seen:
        return ""
    parts = [
        "Bold: the highest mean",
        "†: not distinguishable from it" if "tie" in seen else "",
        "‡: not tested against it, no seed in common" if "untested" in seen else "",
    ]
    tests = [test for column in columns for test in column.tests]
    stated = f" Each row is tested against the bold one, at 5 %: {basis(tests)}." if tests else ""
    return f"{'; '.join(filter(None, parts))}.{stated}"


def slug(*parts: str) -> str:
    """A file stem of any name: [a-z0-9-], never empty."""
    text = re.sub(r"[^a-z0-9]+", "-", "-".join(filter(None, parts)).lower()).strip("-")
    return text[:80].strip("-") or "table"


# ---- columns -------------------------------------------------------------------------------------


def column_of(
    name: str,
    rows: DataFrame,
    by_seed: Series,
    keys: Mapping[int, list[str]],
    paper: Iterable[float | None] | None,
    failed: Series,
    kind: str = "percent",
    **more: Any,
) -> Column:
    """Mean and deviation over seeds of values indexed by (row, seed)."""
    factor = 100.0 if kind in ("percent", "points") else 1.0
    groups = (factor * by_seed).groupby("row")
    cells = DataFrame(
        {
            "value": groups.mean(),
            "std": groups.std(),
            "n": groups.size().reindex(rows.index, fill_value=0),
            "mark": "",
            "text": "",
            "paper": np.array([None] * len(rows) if paper is None else list(paper), dtype=float),
            "keys": [list(dict.fromkeys(keys.get(row, []))) for row in rows.index],
            "failed": failed,
        },
        index=rows.index,
    )
    return Column(name, cells, kind, **more)


def ranked_column(
    name: str,
    rows: DataFrame,
    scores: DataFrame,
    paper: Iterable[float | None] | None,
    failed: Series,
    **more: Any,
) -> Column:
    """The mean over domains; the highest of each section is marked, and what ties with it."""
    column = column_of(name, rows, seed_means(scores), keys_of(scores), paper, failed, **more)
    marks: dict[int, str] = {}
    sections = rows["section"].unique()
    for section in sections:
        mine = rows.index[rows["section"] == section]
        same = scores if len(sections) == 1 else scores[scores.index.isin(mine, level="row")]
        found, tests = rank(same)
        marks |= found
        column.tests += tests
    column.cells["mark"] = [marks.get(row, "") for row in rows.index]
    return column


def keys_of(scores: DataFrame) -> dict[int, list[str]]:
    """The runs behind each row."""
    found: dict[int, list[str]] = {}
    for (row, *_), key in zip(scores.index.tolist(), scores["key"].tolist(), strict=True):
        found.setdefault(row, []).append(key)
    return found


def seed_means(scores: DataFrame) -> Series:
    return scores["value"].groupby(["row", "seed"]).mean()
