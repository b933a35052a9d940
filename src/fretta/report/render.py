"""Tables as Markdown, CSV, LaTeX (with booktabs), and as the template of the page wants them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from itertools import groupby
from typing import Any

from pandas import DataFrame, isna

from .table import Column, Table

DASH = "–"
SIGNS = {"tie": "†", "untested": "‡"}
SPOKEN = {
    "best": "highest",
    "tie": "not distinguishable from the highest",
    "untested": "not tested against the highest",
}
WIDE = 8  # columns of numbers that still fit a page


def show(value: float | None, kind: str, std: float | None = None) -> str:
    """As printed; deviation with as many digits."""
    if value is None or isna(value):
        return DASH
    if kind in ("percent", "points"):
        text = f"{value:+.2f}" if kind == "points" else f"{value:.2f}"
        return text if std is None or isna(std) else f"{text} ± {std:.2f}"
    if kind == "bytes":
        return f"{value / 2**20:.0f}"
    if kind == "ratio":
        return f"{value:.2f}"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}"


def heading(column: Column) -> str:
    unit = {"points": "points", "bytes": "MiB"}.get(column.kind)
    return f"{column.name} ({unit})" if unit else column.name


def _beside(table: Table, paper: bool) -> list[bool]:
    """For each column, whether the paper has a number anywhere."""
    return [paper and bool(c.cells["paper"].notna().any()) for c in table.columns]


def _name(row: Any, table: Table, safe: Callable[[str], str]) -> tuple[str, str]:
    """Label with setting, and the flags that tell this row from others."""
    flags = "; ".join(f for f in row.flags if f not in table.shared)
    return safe(f"{row.label} ({row.setting})" if row.setting else row.label), safe(flags)


def _difference(cell: Any, kind: str) -> str:
    gap = cell.value - cell.paper
    text = show(gap, "points" if kind in ("percent", "points") else kind)
    return text if isna(gap) or text.startswith(("+", "-")) else f"+{text}"


# ---- Markdown and CSV ----------------------------------------------------------------------------


def markdown_safe(name: str) -> str:
    """A name as Markdown shows it: signs are signs, and a pipe ends no cell."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$!&])", r"\\\1", " ".join(name.split()))


def markdown(table: Table, paper: bool = True) -> str:
    safe, beside = markdown_safe, _beside(table, paper)
    head = ["method"]
    for column, both in zip(table.columns, beside, strict=True):
        name = heading(column)
        head.append(safe(f"{column.group}: {name}" if column.group else name))
        head += [safe(f"{column.name} {x}") for x in ("paper", "diff.")] if both else []
    lines = [f"### {safe(table.title)}", "", f"| {' | '.join(head)} |"]
    lines.append("|---" + "|---:" * (len(head) - 1) + "|")
    for section, rows in groupby(table.lines, key=lambda line: line[0].section):
        if section:
            lines.append(f"| **{safe(section)}** |" + " |" * (len(head) - 1))
        for row, cells in rows:
            name, flags = _name(row, table, safe)
            shown = [f"{name} \\[{flags}\\]" if flags else name]
            for cell, column, both in zip(cells, table.columns, beside, strict=True):
                text = show(cell.value, column.kind, cell.std)
                if column.kind == "text":
                    text = safe(cell.text) or DASH
                elif isna(cell.value) and cell.failed:
                    text = "failed"
                bold = f"**{text}**" if cell.mark == "best" else text + SIGNS.get(cell.mark, "")
                shown.append(bold)
                if both:
                    shown += [show(cell.paper, column.kind), _difference(cell, column.kind)]
            lines.append(f"| {' | '.join(shown)} |")
    below = [f"{safe(line)}  " for line in (table.caption, *table.notes)]
    return "\n".join([*lines, "", *below]) + "\n"


def comma_separated(table: Table, paper: bool = True) -> str:
    """Full precision, one line per row; a value we do not have is empty."""
    columns: list[tuple[str, Any]] = []
    if table.rows["section"].any():
        columns.append(("section", table.rows["section"]))
    columns += [("method", table.rows["label"].map(_harmless))]
    columns += [("setting", table.rows["setting"].map(_harmless))]
    columns += [("flags", table.rows["flags"].str.join("; "))]
    for column, both in zip(table.columns, _beside(table, paper), strict=True):
        name, cells = column.name, column.cells.round(6)
        name = f"{column.group}: {name}" if column.group else name
        if column.kind == "text":
            columns.append((name, cells["text"]))
        else:
            columns.append((name, cells["value"]))
            columns += [(f"{name} {x}", cells[x]) for x in ("std", "n", "mark")]
        if both:
            gap = (column.cells["value"] - column.cells["paper"]).round(6)
            columns += [(f"{name} paper", cells["paper"]), (f"{name} difference", gap)]
    frame = DataFrame({number: values for number, (_, values) in enumerate(columns)})
    head = [_harmless(name) for name, _ in columns]
    text: str = frame.to_csv(index=False, header=head, lineterminator="\n")
    return text


def _harmless(name: str) -> str:
    """A spreadsheet runs what begins like a formula; a quote in front keeps it a text."""
    return f"'{name}" if name[:1] in "=+-@\t\r" and name else name


# ---- LaTeX ---------------------------------------------------------------------------------------

_LATEX = {
    **{sign: f"\\{sign}" for sign in "{}$&#%_"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "±": r"$\pm$",
    "×": r"$\times$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "λ": r"$\lambda$",
    '"': r"\textquotedbl{}",
}


def latex_safe(text: str) -> str:
    """Any name as text: no sign of it is a command, and control characters are gone."""
    kept = "".join(c for c in " ".join(text.split()) if unicodedata.category(c)[0] != "C")
    return "".join(_LATEX.get(c, c) for c in kept)


def _signed(number: str) -> str:
    return number.replace("-", "$-$").replace(DASH, "--")


def _latex_cell(cell: Any, kind: str) -> str:
    if kind == "text":
        return latex_safe(cell.text) or "--"
    if isna(cell.value):
        return r"\textit{failed}" if cell.failed else "--"
    number = _signed(show(cell.value, kind))
    if cell.mark == "best":
        number = rf"\textbf{{{number}}}"
    number += latex_safe(SIGNS.get(cell.mark, ""))
    spread = not isna(cell.std) and kind in ("percent", "points")
    return number + (rf"\,{{\scriptsize$\pm${cell.std:.2f}}}" if spread else "")


def latex(table: Table, paper: bool = True) -> str:
    safe, beside = latex_safe, _beside(table, paper)
    names, groups = ["method"], [""]
    for column, both in zip(table.columns, beside, strict=True):
        here = [heading(column), *(["paper", "diff."] if both else [])]
        names += [safe(n) for n in here]
        groups += [column.group] * len(here)
    lines = [
        r"% needs \usepackage{booktabs,graphicx}",
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{safe(' '.join([table.title + '.', table.caption, *table.notes]))}}}",
        rf"  \label{{tab:{table.name}}}",
    ]
    wide = len(names) - 1 > WIDE
    lines += [r"  \resizebox{\linewidth}{!}{%"] if wide else []
    lines += [rf"  \begin{{tabular}}{{@{{}}l{'r' * (len(names) - 1)}@{{}}}}", r"    \toprule"]
    lines += _latex_groups(groups) if any(groups) else []
    lines += [f"    {' & '.join(names)} \\\\", r"    \midrule"]
    by_section = groupby(table.lines, key=lambda line: line[0].section)
    for number, (section, rows) in enumerate(by_section):
        if section:
            lines += [r"    \midrule"] if number else []
            lines.append(rf"    \multicolumn{{{len(names)}}}{{@{{}}l}}{{{safe(section)}}} \\")
        for row, cells in rows:
            name, flags = _name(row, table, safe)
            shown = [name + (rf" {{\scriptsize[{flags}]}}" if flags else "")]
            for cell, column, both in zip(cells, table.columns, beside, strict=True):
                shown.append(_latex_cell(cell, column.kind))
                if both:
                    gap = _difference(cell, column.kind)
                    shown += [_signed(show(cell.paper, column.kind)), _signed(gap)]
            lines.append("    " + " & ".join(shown) + r" \\")
    lines += [r"    \bottomrule", r"  \end{tabular}" + ("}" if wide else ""), r"\end{table}"]
    return "\n".join(lines) + "\n"


def _latex_groups(groups: list[str]) -> list[str]:
    heads, rules, at = [], [], 1
    for group, same in groupby(groups):
        width = len(list(same))
        span = rf"\multicolumn{{{width}}}{{c}}{{{latex_safe(group)}}}"
        heads.append(span if group else "&" * (width - 1))
        if group:
            rules.append(rf"\cmidrule(lr){{{at}-{at + width - 1}}}")
        at += width
    return [f"    {' & '.join(heads)} \\\\", f"    {' '.join(rules)}"]


# ---- the page ------------------------------------------------------------------------------------


def table_view(
    table: Table, numbers: Callable[[list[str], str], str], paper: bool
) -> dict[str, Any]:
    """Plain values, escaped by the template; `numbers` are those of runs in the page's data."""
    groups = [(name, len(list(same))) for name, same in groupby(c.group for c in table.columns)]
    sections = []
    for section, rows in groupby(table.lines, key=lambda line: line[0].section):
        views = []
        for row, cells in rows:
            shown = [
                _cell_view(cell, column, numbers(cell.keys, table.suite), paper)
                for cell, column in zip(cells, table.columns, strict=True)
            ]
            flags = [f for f in row.flags if f not in table.shared]
            view = {"label": row.label, "setting": row.setting, "flags": flags, "cells": shown}
            views.append(view)
        sections.append({"name": section, "rows": views})
    return {
        "name": table.name,
        "title": table.title,
        "caption": table.caption,
        "notes": table.notes,
        "groups": [{"name": n, "span": s} for n, s in groups] if any(n for n, _ in groups) else [],
        "columns": [{"head": heading(c), "long": c.long} for c in table.columns],
        "paper": paper and table.has_paper,
        "sections": sections,
    }


def _cell_view(cell: Any, column: Column, runs: str, paper: bool) -> dict[str, Any]:
    empty = isna(cell.value) and not cell.text
    broken = empty and cell.failed
    spread = column.kind in ("percent", "points") and not isna(cell.std)
    beside = paper and not isna(cell.paper)
    gap = cell.value - cell.paper
    return {
        "text": "failed" if broken else cell.text or _minus(show(cell.value, column.kind)),
        "sign": SIGNS.get(cell.mark, ""),
        "spoken": SPOKEN.get(cell.mark, ""),
        "std": f"{cell.std:.2f}" if spread else "",
        "mark": cell.mark,
        "sort": cell.text if isna(cell.value) else f"{cell.value:.6g}",
        "runs": runs,
        "column": column.name,
        "tone": "broken" if broken else "none" if empty else "",
        "paper": _minus(show(cell.paper, column.kind)) if beside else "",
        "gap": _minus(f"{gap:+.2f}") if beside and not isna(gap) else "",
    }


def _minus(number: str) -> str:
    """The sign as wide as a plus."""
    return f"−{number[1:]}" if number.startswith("-") else number
