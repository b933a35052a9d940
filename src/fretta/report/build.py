"""All parts of a report, made once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import MissingExtraError
from ..experiment.store import Store
from .data import ReportData
from .glance import Headline, headline
from .setups import Setup, setups_of
from .tables import Table, tables_of

if TYPE_CHECKING:
    from .figures import Figure


@dataclass
class Report:
    data: ReportData
    tables: list[Table] = field(default_factory=list)
    headlines: list[Headline] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    figures_note: str = ""

    def page(self, paper: bool = True, live: str = "", running: Sequence[str] = ()) -> str:
        """The HTML page; `live` is the version of the store that a watched page shows."""
        from .page import render

        return render(self, paper, live, running)


def build(store: Store, suite: str | None = None) -> Report:
    """Read the store and make tables, headlines and figures of it."""
    data = ReportData.read(store, suite)
    setups = setups_of(data.records, data.batches)
    shown = [s for s in setups if not s.suite.endswith("/tune")]  # a search is no answer
    figures, note = find_figures(data, setups)
    return Report(data, tables_of(setups), [headline(s) for s in shown], figures, note)


def find_figures(data: ReportData, setups: list[Setup]) -> tuple[list[Figure], str]:
    """All figures that the store has data for, and a note about those that are not drawn."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        missing = MissingExtraError(error.name or "matplotlib", "report", "drawing figures")
        return [], f"Figures are left out: {missing}"
    from . import figures

    return figures.find_figures(data, setups)
