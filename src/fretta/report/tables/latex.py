"""Tables as LaTeX with booktabs: \\usepackage{booktabs} and, for wide ones, graphicx."""

from __future__ import annotations

import re
import unicodedata
from itertools import groupby

from .table import Cell, Row, Table, own_flags, show
from .text import heading, mark_sign, row_name, with_paper

_SIGNS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
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
WIDE = 8  # columns of numbers that still fit a page


def safe(text: str) -> str:
    """Any name as text: no sign of it is a command, and control characters are gone."""
    kept = "".join(c for c in " ".join(text.split()) if unicodedata.category(c)[0] != "C")
    return "".join(_SIGNS.get(c, c) for c in kept)


def _signed(number: str) -> str:
    return number.replace("-", "$-$")


def _cell(cell: Cell, kind: str) -> str:
    if kind == "text":
        return safe(cell.text) or "--"
    if cell.value is None:
        return r"\textit{failed}" if cell.failed else "--"
    number = _signed(show(cell.value, kind))
    if cell.mark == "best":
        number = rf"\textbf{{{number}}}"
    number += safe(mark_sign(cell.mark))
    spread = cell.std is not None and kind in ("percent", "points")
    return number + (rf"\,{{\scriptsize$\pm${cell.std:.2f}}}" if spread else "")


def _row(row: Row, table: Table, beside: list[int]) -> str:
    own = own_flags(table, row)
    flags = rf" {{\scriptsize[{safe('; '.join(own))}]}}" if own else ""
    cells = [safe(row_name(row)) + flags]
    for j, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True)):
        cells.append(_cell(cell, column.kind))
        if j in beside:
            gap = cell.difference
            cells.append("--" if cell.paper is None else _signed(show(cell.paper, column.kind)))
            cells.append("--" if gap is None else _signed(f"{gap:+.2f}"))
    return "    " + " & ".join(cells) + r" \\"


def latex(table: Table, paper: bool = True) -> str:
    beside = with_paper(table, paper)
    names = [safe(table.first)]
    spans: list[tuple[str, int]] = [("", 1)]
    for j, column in enumerate(table.columns):
        here = [heading(column), *(["paper", "diff."] if j in beside else [])]
        names += [safe(n) for n in here]
        spans.append((column.group, len(here)))
    lines = [
        r"% needs \usepackage{booktabs,graphicx}",
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{safe(' '.join([table.title + '.', table.caption, *table.notes]))}}}",
        rf"  \label{{tab:{re.sub('[^a-z0-9-]', '', table.name)}}}",
    ]
    wide = len(names) - 1 > WIDE
    if wide:
        lines.append(r"  \resizebox{\linewidth}{!}{%")
    lines += [rf"  \begin{{tabular}}{{@{{}}l{'r' * (len(names) - 1)}@{{}}}}", r"    \toprule"]
    if any(group for group, _ in spans):
        lines += _groups(spans)
    lines += [f"    {' & '.join(names)} \\\\", r"    \midrule"]
    for number, section in enumerate(table.sections):
        if section:
            lines += [r"    \midrule"] if number else []
            lines.append(rf"    \multicolumn{{{len(names)}}}{{@{{}}l}}{{{safe(section)}}} \\")
        lines += [_row(row, table, beside) for row in table.rows if row.section == section]
    lines += [r"    \bottomrule", r"  \end{tabular}" + ("}" if wide else ""), r"\end{table}"]
    return "\n".join(lines) + "\n"


def _groups(spans: list[tuple[str, int]]) -> list[str]:
    heads, rules, at = [], [], 1
    for group, same in groupby(spans, key=lambda span: span[0]):
        width = sum(n for _, n in same)
        span = rf"\multicolumn{{{width}}}{{c}}{{{safe(group)}}}"
        heads.append(span if group else "&" * (width - 1))
        if group:
            rules.append(rf"\cmidrule(lr){{{at}-{at + width - 1}}}")
        at += width
    return [f"    {' & '.join(heads)} \\\\", f"    {' '.join(rules)}"]
