"""A table as the template of the page wants it: plain values, escaped there."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from ..payload import Payload
from .table import Cell, Column, Table, own_flags, show
from .text import heading, mark_sign

SPOKEN = {
    "best": "highest",
    "tie": "not distinguishable from the highest",
    "untested": "not tested against the highest",
}


def table_view(table: Table, payload: Payload, paper: bool) -> dict[str, Any]:
    groups = [
        {"name": name, "span": len(list(same))}
        for name, same in groupby(table.columns, key=lambda c: c.group)
    ]
    return {
        "name": table.name,
        "title": table.title,
        "caption": table.caption,
        "notes": table.notes,
        "first": table.first,
        "groups": groups if any(g["name"] for g in groups) else [],
        "columns": [{"head": heading(c), "long": c.long} for c in table.columns],
        "paper": paper and table.has_paper,
        "sections": [
            {
                "name": section,
                "rows": [
                    {
                        "label": row.label,
                        "setting": row.setting,
                        "flags": own_flags(table, row),
                        "cells": [
                            _cell(cell, column, payload.numbers(cell.keys, table.suite), paper)
                            for cell, column in zip(row.cells, table.columns, strict=True)
                        ],
                    }
                    for row in table.rows
                    if row.section == section
                ],
            }
            for section in table.sections
        ],
    }


def _cell(cell: Cell, column: Column, runs: str, paper: bool) -> dict[str, Any]:
    spread = cell.std if column.kind in ("percent", "points") else None
    broken = cell.failed and cell.value is None and not cell.text
    text = "failed" if broken else cell.text or show(cell.value, column.kind)
    gap = cell.difference
    beside = paper and cell.paper is not None
    return {
        "text": _minus(text),
        "sign": mark_sign(cell.mark),
        "spoken": SPOKEN.get(cell.mark, ""),
        "std": "" if spread is None else f"{spread:.2f}",
        "mark": cell.mark,
        "sort": cell.text if cell.value is None else f"{cell.value:.6g}",
        "runs": runs,
        "column": column.name,
        "tone": "broken" if broken else "" if cell.text or cell.value is not None else "none",
        "paper": _minus(show(cell.paper, column.kind)) if beside else "",
        "gap": _minus(f"{gap:+.2f}") if beside and gap is not None else "",
    }


def _minus(number: str) -> str:
    """The sign as wide as a plus."""
    return f"−{number[1:]}" if number.startswith("-") else number
