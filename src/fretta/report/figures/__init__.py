"""Figures from records, details and analyses. `figures` says what there is, the rest draws it.

Preparation and painting are apart: a `Figure` holds its words and numbers, and how to paint it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ..data import ReportData
from . import (
    calibration,
    classes,
    confusion,
    cost,
    mechanism,
    nrs,
    relation,
    sensitivity,
    severity,
    time,
    tsne,
)
from .base import Figure
from .panels import PANELS, Panel, panels
from .render import png, svg, svg_file

__all__ = ["Figure", "figures", "left_out", "png", "svg", "svg_file"]

MOST = 12  # figures of the paper that are drawn

ANALYSES: dict[str, Callable[[dict[str, Any]], Iterable[Figure | None]]] = {
    "redundancy": lambda a: [*severity.build(a), relation.build(a)],
    "mechanism": lambda a: [mechanism.build(a)],
    "tsne": lambda a: [tsne.build(a)],
}


def figures(data: ReportData) -> list[Figure]:
    """All that the store has data for: the paper's first, then what one asks of any run."""
    drawn = _of_paper(data)[:MOST]
    for panel in _drawn(data)[0]:
        drawn += _of_panel(panel, data)
    names: set[str] = set()
    unique = []
    for figure in drawn:
        if figure.name not in names:
            names.add(figure.name)
            unique.append(figure)
    return unique


def left_out(data: ReportData) -> list[str]:
    """What is in the store and not drawn, in sentences for the page."""
    told = []
    setups = _drawn(data)[1]
    if setups:
        names = ", ".join(f"{p.suite}/{p.title}" for p in setups[:5])
        more = f" and {len(setups) - 5} more" if len(setups) > 5 else ""
        told.append(
            f"Figures show the {PANELS} setups with the most methods; not drawn: {names}{more}."
            " Report one suite alone with --suite."
        )
    extra = len(_of_paper(data)) - MOST
    if extra > 0:
        told.append(f"{extra} figures of further analyses are not drawn.")
    return told


def _drawn(data: ReportData) -> tuple[list[Panel], list[Panel]]:
    """Setups that get figures, and those that do not. Grids have figures of their own."""
    found = panels(data.records)
    if len(found) > 1:
        found = [p for p in found if not p.is_grid] or found
    return found[:PANELS], found[PANELS:]


def _of_paper(data: ReportData) -> list[Figure]:
    found: list[Figure] = []
    for kind, build in ANALYSES.items():  # in the order of the paper
        for analysis in data.analyses:
            if analysis.get("kind") == kind:
                what = f"analysis {analysis.get('name')!r}"
                found += _tried(data, what, partial(build, analysis))
    return found + _tried(data, "sensitivity", partial(sensitivity.build, data.runs))


def _of_panel(panel: Panel, data: ReportData) -> list[Figure]:
    made: list[Figure] = []
    for build in (
        lambda: [time.build(panel, data)],
        lambda: [cost.build(panel)],
        lambda: [classes.build(panel, data)],
        lambda: [calibration.build(panel, data)],
        lambda: [confusion.build(panel, data)],
        lambda: [nrs.build(panel)],
    ):
        made += _tried(data, f"a figure of {panel.suite}/{panel.case}", build)
    return made


def _tried(
    data: ReportData, what: str, build: Callable[[], Iterable[Figure | None]]
) -> list[Figure]:
    """Files of another version or of somebody else's making cost their figure, not the report."""
    try:
        return [figure for figure in build() if figure is not None]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        message = f"{what} cannot be drawn: {type(error).__name__}: {error}"
        if message not in data.damaged:
            data.damaged.append(message)
        return []
