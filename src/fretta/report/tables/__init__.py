"""Every table that the records of a store allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..members import Setup
from .across import scale_table, shift_table
from .cost import cost_table
from .domains import corrupted, domain_table, span_table
from .table import Cell, Column, Row, Table

__all__ = ["Cell", "Column", "Row", "Table", "tables_of"]


def tables_of(setups: Sequence[Setup]) -> list[Table]:
    """Suite by suite: label shift, groups of corruptions, domains, cost; then across suites."""
    made: list[Table | None] = []
    for suite in dict.fromkeys(s.suite for s in setups):
        mine = [s for s in setups if s.suite == suite]
        made.append(shift_table(mine))
        for setup in mine:
            if corrupted(setup):
                made.append(span_table(setup))
            made.append(domain_table(setup))
            if any(m.done for m in setup.members):
                made.append(cost_table(setup))
    made.append(scale_table(setups))
    return _distinct([t for t in made if t is not None])


def _distinct(tables: list[Table]) -> list[Table]:
    """No two tables write the same file: `a/b` and `a-b` are one stem."""
    taken: set[str] = set()
    result = []
    for table in tables:
        name, number = table.name, 2
        while name in taken:
            name, number = f"{table.name}-{number}", number + 1
        taken.add(name)
        result.append(replace(table, name=name))
    return result
