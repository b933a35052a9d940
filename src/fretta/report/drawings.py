"""The figures of a report, drawn for the page; none where matplotlib is not installed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError
from .data import ReportData

if TYPE_CHECKING:
    from .figures import Figure

GROUPS = {"paper": "Figures of the paper", "runs": "Figures of the runs"}
ROWS = 200  # of a figure's numbers on the page; its CSV has all
_STYLE = re.compile(r"<style\b.*?</style>", re.S)


def find_figures(data: ReportData) -> tuple[list[Figure], str]:
    """All figures that the store has data for, and what to say of those that are not drawn."""
    try:
        import matplotlib  # noqa: F401

        from .figures import figures, left_out
    except ModuleNotFoundError as error:
        missing = MissingExtraError(error.name or "matplotlib", "report", "drawing figures")
        return [], f"Figures are left out: {missing}"
    return figures(data), " ".join(left_out(data))


def figure_views(found: list[Figure]) -> list[dict[str, Any]]:
    """For the template, by group."""
    if not found:
        return []
    from .figures import svg

    views = []
    for group, title in GROUPS.items():
        mine = [f for f in found if f.group == group]
        if mine:
            views.append({"title": title, "figures": [_view(f, svg(f)) for f in mine]})
    return views


def _view(figure: Figure, drawing: str) -> dict[str, Any]:
    from markupsafe import Markup

    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "alt": figure.alt,
        "series": figure.series,
        # The page's policy allows one style sheet, its own; page.css says what these would.
        "svg": Markup(_STYLE.sub("", drawing)),
        "header": figure.header,
        "rows": [[number(v) for v in row] for row in figure.rows[:ROWS]],
        "left_out": max(0, len(figure.rows) - ROWS),
    }


def number(value: str | float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
