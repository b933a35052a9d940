"""Figures from records, details and analyses: `figures` finds all that a store has data for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from ..data import ReportData
from ..setups import Setup, setups_of
from .analyses import ANALYSES
from .draw import Figure
from .runs import RUNS, Panel, panels, sensitivity

__all__ = ["Figure", "figures", "left_out"]

PANELS = 2  # so many setups get figures: the ones with the most methods
MOST = 12  # figures of the paper that are drawn


def figures(data: ReportData, setups: list[Setup] | None = None) -> list[Figure]:
    """The paper's figures first, then those of the runs."""
    drawn = _of_paper(data)[:MOST]
    for panel in _chosen(data, setups)[:PANELS]:
        for build in RUNS:
            drawn += _tried(data, f"a figure of {panel.title}", partial(build, panel, data))
    return list({figure.name: figure for figure in reversed(drawn)}.values())[::-1]


def left_out(data: ReportData, setups: list[Setup] | None = None) -> list[str]:
    """What is in the store and not drawn, in sentences for the page."""
    sentences = []
    others = _chosen(data, setups)[PANELS:]
    if others:
        names = ", ".join(f"{p.setup.suite}/{p.title}" for p in others[:5])
        more = f" and {len(others) - 5} more" if len(others) > 5 else ""
        sentences.append(
            f"Figures show the {PANELS} setups with the most methods; not drawn: {names}{more}."
            " Report one suite alone with --suite."
        )
    extra = len(_of_paper(data)) - MOST
    if extra > 0:
        sentences.append(f"{extra} figures of further analyses are not drawn.")
    return sentences


def _chosen(data: ReportData, setups: list[Setup] | None) -> list[Panel]:
    """Those with most methods first. Grids have figures of their own."""
    found = panels(setups_of(data.records) if setups is None else setups)
    return [p for p in found if not p.is_grid] or found


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
