"""Tables as Markdown and CSV."""

from __future__ import annotations

import csv
import io
import re

from .table import Cell, Column, Row, Table, own_flags, show

_SIGNS = re.compile(r"([\\`*_{}\[\]<>#|~$!&])")


def safe(name: str) -> str:
    """A name as Markdown shows it: signs are signs, and a pipe ends no cell."""
    return _SIGNS.sub(r"\\\1", " ".join(name.split()))


def heading(column: Column) -> str:
    unit = {"points": "points", "bytes": "MiB"}.get(column.kind)
    return f"{column.name} ({unit})" if unit else column.name


def mark_sign(mark: str) -> str:
    return {"tie": "†", "untested": "‡"}.get(mark, "")


def _cell(cell: Cell, column: Column) -> str:
    if column.kind == "text":
        return safe(cell.text) or "–"
    text = show(cell.value, column.kind, cell.std)
    if cell.value is None:
        return "failed" if cell.failed else text
    return f"**{text}**" if cell.mark == "best" else text + mark_sign(cell.mark)


def _paper(cell: Cell, column: Column) -> list[str]:
    points = "points" if column.kind in ("percent", "points") else column.kind
    gap = cell.difference
    sign = "+" if gap is not None and gap >= 0 and points != "points" else ""
    return [show(cell.paper, column.kind), sign + show(gap, points)]


def with_paper(table: Table, paper: bool) -> list[int]:
    """The columns for which the paper has a number anywhere."""
    return [
        j
        for j in range(len(table.columns))
        if paper and any(row.cells[j].paper is not None for row in table.rows)
    ]


def row_name(row: Row) -> str:
    return f"{row.label} ({row.setting})" if row.setting else row.label


def markdown(table: Table, paper: bool = True) -> str:
    beside = with_paper(table, paper)
    head, align = [table.first], ["---"]
    for j, column in enumerate(table.columns):
        name = f"{column.group}: {heading(column)}" if column.group else heading(column)
        extra = [f"{column.name} paper", f"{column.name} diff."] if j in beside else []
        head += [safe(name), *map(safe, extra)]
        align += ["---:"] * (1 + len(extra))
    lines = [f"### {safe(table.title)}", "", f"| {' | '.join(head)} |", f"|{'|'.join(align)}|"]
    for section in table.sections:
        if section:
            lines.append(f"| **{safe(section)}** |" + " |" * (len(head) - 1))
        for row in (r for r in table.rows if r.section == section):
            own = own_flags(table, row)
            flags = f" [{'; '.join(own)}]" if own else ""
            cells = [safe(row_name(row) + flags)]
            for j, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True)):
                cells.append(_cell(cell, column))
                cells += _paper(cell, column) if j in beside else []
            lines.append(f"| {' | '.join(cells)} |")
    below = [table.caption, *table.notes]
    return "\n".join([*lines, "", *(f"{safe(line)}  " for line in below if line)]) + "\n"


def comma_separated(table: Table, paper: bool = True) -> str:
    """Full precision, one line per row; a value we do not have is empty."""
    beside = with_paper(table, paper)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = [*(["section"] if any(table.sections) else []), table.first, "setting", "flags"]
    for j, column in enumerate(table.columns):
        name = f"{column.group}: {column.name}" if column.group else column.name
        head.append(name)
        if column.kind != "text":
            head += [f"{name} std", f"{name} n", f"{name} mark"]
        head += [f"{name} paper", f"{name} difference"] if j in beside else []
    writer.writerow([_harmless(h) for h in head])
    for row in table.rows:
        line: list[str | float | int | None] = [row.section] if any(table.sections) else []
        line += [_harmless(row.label), _harmless(row.setting), "; ".join(row.flags)]
        for j, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True)):
            if column.kind == "text":
                line.append(cell.text)
            else:
                line += [_number(cell.value), _number(cell.std), cell.n, cell.mark]
            line += [_number(cell.paper), _number(cell.difference)] if j in beside else []
        writer.writerow(line)
    return out.getvalue()


def _number(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _harmless(name: str) -> str:
    """A spreadsheet runs what begins like a formula; a quote in front keeps it a text."""
    return f"'{name}" if name[:1] in "=+-@\t\r" and name else name
