"""Figures from records, details and analyses: `find_figures` makes all a store has data for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from ..data import ReportData
from ..setups import Setup
from .analyses import ANALYSES
from .by_class import calibration, classes, confusion
from .draw import Figure
from .grids import sensitivity
from .panel import panels
from .runs import cost, nrs, time

__all__ = ["Figure", "find_figures"]

RUNS = (time, cost, classes, calibration, confusion, nrs)
PANELS = 2  # so many setups get figures: the ones with the most methods
MOST = 12  # figures of the paper that are drawn


def find_figures(data: ReportData, setups: list[Setup]) -> tuple[list[Figure], str]:
    """The paper's figures, then those of the runs; and a note about what is not drawn.

    Of the runs, the setups with most methods; grids have figures of their own.
    """
    paper, notes = _of_paper(data), []
    found = panels(setups)
    chosen = [p for p in found if not p.is_grid] or found
    drawn = paper[:MOST]
    for panel in chosen[:PANELS]:
        for build in RUNS:
            drawn += _tried(data, f"a figure of {panel.title}", partial(build, panel, data))
    others = chosen[PANELS:]
    if others:
        names = ", ".join(f"{p.setup.suite}/{p.title}" for p in others[:5])
        more = f" and {len(others) - 5} more" if len(others) > 5 else ""
        notes.append(
            f"Figures show the {PANELS} setups with the most methods; not drawn: {names}{more}."
            " Report one suite alone with --suite."
        )
    if len(paper) > MOST:
        notes.append(f"{len(paper) - MOST} figures of further analyses are not drawn.")
    unique = {figure.name: figure for figure in reversed(drawn)}
    return list(unique.values())[::-1], " ".join(notes)


def _of_paper(data: ReportData) -> list[Figure]:
    found: list[Figure] = []
    for kind, builders in ANALYSES.items():  # in the order of the paper
        for analysis in data.analyses:
            if analysis.get("kind") == kind:
                for build in builders:
                    name = f"analysis {analysis.get('name')!r}"
                    found += _tried(data, name, partial(build, analysis))
    found += _tried(data, "sensitivity", partial(sensitivity, data))
    for figure in found:
        figure.group = "paper"
    return found


def _tried(
    data: ReportData, name: str, build: Callable[[], Iterable[Figure] | Figure | None]
) -> list[Figure]:
    """Files of another version or of somebody else's making cost their figure, not the report."""
    try:
        made = build()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        message = f"{name} cannot be drawn: {type(error).__name__}: {error}"
        if message not in data.damaged:
            data.damaged.append(message)
        return []
    return [made] if isinstance(made, Figure) else list(made or [])
