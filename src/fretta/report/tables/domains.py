"""Accuracy per domain (or corruption), the mean, and the gain over source; and 1-7, 8-15, 1-15."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..describe import protocol_text
from ..members import Member, Setup
from ..paper import paper_mean, paper_value
from ..significance import Series
from .notes import mark_note, paper_notes, shared_flags
from .table import Cell, Column, Row, Table, cell_of, marked, slug

# In the order of the benchmark: noise and blur are 1-7, weather and digital 8-15.
CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur"),
    *("motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast"),
    *("elastic_transform", "pixelate", "jpeg_compression"),
)
SPANS = {"1-7": CORRUPTIONS[:7], "8-15": CORRUPTIONS[7:], "1-15": CORRUPTIONS}
CORRUPTION_TABLE = "IC"


def corrupted(setup: Setup) -> bool:
    return set(CORRUPTIONS) <= set(setup.domains)


def _failed(setup: Setup, member: Member, domain: str) -> int:
    return len(member.failed(setup.cases[domain] if setup.cases else None))


def _paper_average(setup: Setup, label: str) -> float | None:
    return paper_mean(setup.paper, setup.dataset, setup.name, label, setup.domains)


def _paper_gain(setup: Setup, label: str) -> float | None:
    mine, base = _paper_average(setup, label), _paper_average(setup, "source")
    return None if mine is None or base is None else mine - base


def domain_table(setup: Setup) -> Table:
    """One row per method, one column per domain."""
    several = len(setup.domains) > 1
    columns = [Column(name) for name in setup.domains]
    if several:
        columns.append(Column("average", long="mean over the domains"))
    gain = setup.source is not None
    if gain:
        columns.append(
            Column("gain", "points", ranked=False, long="average above source, in points")
        )
    series: list[list[Series]] = []
    cells: list[list[Cell]] = []
    for member in setup.members:
        values = [member.domain(name) for name in setup.domains]
        shown = [
            cell_of(
                v,
                "percent",
                paper_value(setup.paper, setup.dataset, setup.name, member.label, name),
                _failed(setup, member, name),
            )
            for v, name in zip(values, setup.domains, strict=True)
        ]
        failed = len(member.failed())
        if several:
            values.append(member.mean(setup.domains))
            paper = _paper_average(setup, member.label)
            shown.append(cell_of(values[-1], "percent", paper, failed))
        if gain:
            values.append(setup.gain(member))
            shown.append(cell_of(values[-1], "points", _paper_gain(setup, member.label), failed))
        series.append(values)
        cells.append(shown)
    return _finished(setup, columns, series, cells, "accuracy", "Accuracy per domain")


def span_table(setup: Setup) -> Table:
    """The mean over the first seven corruptions, the other eight, and all."""
    columns = [
        Column(span, long=f"mean over {names[0]} to {names[-1]}") for span, names in SPANS.items()
    ]
    series = [[m.mean(names) for names in SPANS.values()] for m in setup.members]
    cells = [
        [
            cell_of(
                v,
                "percent",
                paper_value(CORRUPTION_TABLE, setup.dataset, setup.name, m.label, span)
                if setup.paper
                else None,
                len(m.failed()),
            )
            for v, span in zip(values, SPANS, strict=True)
        ]
        for m, values in zip(setup.members, series, strict=True)
    ]
    return _finished(setup, columns, series, cells, "corruption", "Groups of corruptions")


def _finished(
    setup: Setup,
    columns: Sequence[Column],
    series: Sequence[Sequence[Series]],
    cells: Sequence[Sequence[Cell]],
    kind: str,
    title: str,
) -> Table:
    marks, rankings = marked(columns, series)
    rows = tuple(
        [
            Row(
                m.label,
                tuple(with_mark(c, mark) for c, mark in zip(row, row_marks, strict=True)),
                m.setting,
                m.flags,
                method=m.method,
            )
            for m, row, row_marks in zip(setup.members, cells, marks, strict=True)
        ]
    )
    shared, told = shared_flags(rows)
    notes = tuple(filter(None, (mark_note(rankings), *told, *paper_notes(setup))))
    return Table(
        slug(setup.suite, setup.title, kind),
        f"{title}: {setup.title}",
        tuple(columns),
        rows,
        setup.suite,
        setup.heading,
        f"{setup.heading}. Accuracy in %, mean ± standard deviation over seeds. "
        f"{protocol_text(setup.run, setup.seeds)}.",
        notes,
        shared,
    )


def with_mark(cell: Cell, mark: str) -> Cell:
    return replace(cell, mark=mark)
