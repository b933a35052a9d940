"""Tables as files: golden Markdown, LaTeX, CSV and HTML, and names that mean harm.

After a change that is meant, `FRETTA_GOLDEN=write pytest tests/report/test_rendered_tables.py`
writes the files anew; read the difference before keeping it.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import HOSTILE, domain_records, record, shift_records

from fretta.experiment.records import Record
from fretta.experiment.store import Store
from fretta.report.data import ReportData
from fretta.report.page import RunData
from fretta.report.render import comma_separated, latex, markdown, table_view
from fretta.report.setups import setups_of
from fretta.report.table import Table
from fretta.report.tables import tables_of
from fretta.report.write import Report

GOLDEN = Path(__file__).parent / "golden"


def mixed() -> list[Record]:
    """A highest beyond noise, a tie, a missing and a failed cell, flags, settings."""

    def runs(
        label: str, fog: list[float], snow: list[float] | None, **more: object
    ) -> list[Record]:
        return [
            record(
                label,
                seed,
                suite="own",
                case="mine",
                accuracy={"fog": f} | ({"snow": snow[seed]} if snow else {}),
                **more,  # type: ignore[arg-type]
            )
            for seed, f in enumerate(fog)
        ]

    return [
        *runs("source", [0.40, 0.41, 0.40], [0.30, 0.31, 0.32]),
        *runs("tent", [0.60, 0.61, 0.605], [0.500, 0.52, 0.51], dirty=True),
        *runs("tent", [0.70, 0.71, 0.705], [0.501, 0.515, 0.515], hyperparameters={"lr": 0.01}),
        *runs("g-fret", [0.80, 0.81, 0.80], None, tuning="oracle"),
        record("sar", 0, suite="own", case="mine", error="RuntimeError: no"),
    ]


def named(records: list[Record], ending: str) -> Table:
    return next(t for t in tables_of(setups_of(records)) if t.name.endswith(ending))


def pacs() -> list[Record]:
    return domain_records(backbones=("resnet18",))


CASES: dict[str, tuple[Callable[[], list[Record]], str]] = {
    "own-accuracy": (mixed, "accuracy"),
    "own-cost": (mixed, "cost"),
    "pacs": (pacs, "accuracy"),
    "label-shift": (shift_records, "label-shift"),
}


def html(table: Table, records: list[Record]) -> str:
    """The table element of the page, without the rest."""
    page = Report(ReportData(Store("results"), records), [table]).page()
    found = re.search(r"<table data-name=.*?</table>", page, re.S)
    assert found
    return re.sub(r"\n\s*\n+", "\n", found[0]) + "\n"


@pytest.mark.parametrize("form", ["md", "tex", "csv", "html"])
@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, form: str) -> None:
    make, ending = CASES[name]
    table = named(make(), ending)
    if form == "html":
        text = html(table, make())
    else:
        text = {"md": markdown, "tex": latex, "csv": comma_separated}[form](table)
    if form == "tex":
        check_latex(text)
        check_latex(latex(table, paper=False))
    path = GOLDEN / f"{name}.{form}"
    if os.environ.get("FRETTA_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_without_the_paper() -> None:
    table = named(pacs(), "accuracy")
    for render in (markdown, latex, comma_separated):
        assert "paper" in render(table, True)
        assert "paper" not in render(table, False)


# ---- hostile names ----------------------------------------------------------------------------

NAMES = [
    HOSTILE,
    "a|b",
    "x_{1}^2 & 50% #1 $\\alpha$ ~",
    "日本語 Ünïcödé",
    "=cmd()|' /C calc'!A0",
    "`x` *y*",
]


def odd(name: str) -> Table:
    records = [
        record(
            label, s, suite=name, case=name, method=method, accuracy={name: 0.5 + s / 10, "b": 0.4}
        )
        for label, method in ((name, "tent"), ("source", "source"))
        for s in range(2)
    ]
    return named(records, "accuracy")


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names(name: str) -> None:
    table = odd(name)
    lines = [line for line in markdown(table).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {6}
    assert "<script" not in markdown(table).replace("\\<script", "")
    check_latex(latex(table))
    if set(name) & set("_&%$#<|"):
        assert name not in latex(table)
    rows = list(csv.reader(io.StringIO(comma_separated(table))))
    assert len({len(r) for r in rows}) == 1
    assert not any(c.startswith(("=", "@")) for r in rows for c in r)
    assert {r[0].removeprefix("'") for r in rows[1:]} == {name, "source"}


def check_latex(text: str) -> None:
    """What can be checked without a TeX: braces, environments, and as many cells as columns."""
    bare = re.sub(r"\\[\\{}&%$#_]", "", text.replace(r"\\", "\n"))
    bare = "\n".join(line for line in bare.splitlines() if not line.startswith("%"))
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert "%" not in bare.replace("{!}{%", "")
    begun, ended = re.findall(r"\\begin\{(\w+)\}", text), re.findall(r"\\end\{(\w+)\}", text)
    assert begun == ended[::-1] == ["table", "tabular"]
    spec = re.search(r"\\begin\{tabular\}\{@\{\}(\w+)@\{\}\}", text)
    assert spec
    body = text.split(r"\toprule")[1].split(r"\bottomrule")[0]
    for line in body.split(r"\\")[:-1]:
        spread = re.sub(r"\\multicolumn\{(\d+)\}", lambda m: "&" * (int(m[1]) - 1), line)
        assert spread.replace(r"\&", "").count("&") + 1 == len(spec[1]), line


def test_the_page_knows_the_runs_of_a_cell() -> None:
    data = RunData(mixed())
    view = table_view(named(mixed(), "accuracy"), data.numbers, paper=True)
    first = view["sections"][0]["rows"][0]
    assert first["label"] == "source"
    assert first["cells"][0]["runs"] == "0 1 2"
    assert [data.runs[i]["seed"] for i in (0, 1, 2)] == [0, 1, 2]
