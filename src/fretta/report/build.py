"""All parts of a report, made once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..experiment.store import Store
from .data import ReportData
from .drawings import find_figures
from .glance import Headline, headline
from .page import render
from .setups import setups_of
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
        return render(
            self.data,
            self.tables,
            self.headlines,
            self.figures,
            figures_note=self.figures_note,
            paper=paper,
            live=live,
            running=running,
        )


def build(store: Store, suite: str | None = None) -> Report:
    """Read the store and make tables, headlines and figures of it."""
    data = ReportData.read(store, suite)
    setups = setups_of(data.records, data.batches)
    figures, note = find_figures(data)
    shown = [s for s in setups if not s.suite.endswith("/tune")]  # a search is no answer
    return Report(data, tables_of(setups), [headline(s) for s in shown], figures, note)
