"""One HTML page of everything: no network, no other file, names shown and never run."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError
from .data import ReportData
from .drawings import GROUPS, figure_views
from .facts import problems_of, provenance_of, summary_of
from .glance import VERDICTS, Headline
from .payload import Payload
from .shipped import suite_facts
from .tables import Table
from .tables.html import table_view
from .tables.notes import ALL_DIRTY

if TYPE_CHECKING:
    from .figures import Figure

SIGNS = {"helps": "▲", "hurts": "▼", "noise": "≈", "open": "○", "failed": "✕"}
PROBLEMS = 50  # listed on the page


@functools.cache
def _part(name: str) -> str:
    return (resources.files("fretta") / "report" / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() + "'"


def policy(live: bool) -> str:
    """Only the page's own script and style sheet run, known by their hashes.

    Figures carry style attributes, which can draw but not act.
    """
    parts = {
        "default-src": "'none'",
        "script-src": _hash(_part("page.js")),
        "style-src": _hash(_part("page.css")),
        "style-src-attr": "'unsafe-inline'",
        "img-src": "data:",
        "connect-src": "'self'" if live else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items())


@functools.cache
def _template() -> Any:
    try:
        import jinja2
    except ModuleNotFoundError as error:
        raise MissingExtraError("jinja2", "report", "the report page") from error
    from .palette import color

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["color"] = color
    return environment.from_string(_part("page.html"))


def render(
    data: ReportData,
    tables: Sequence[Table],
    headlines: Sequence[Headline],
    figures: Sequence[Figure] = (),
    *,
    figures_note: str = "",
    paper: bool = True,
    live: str = "",
    running: Sequence[str] = (),
) -> str:
    """The page; `live` is the version of the store that a watched page shows."""
    template = _template()
    from markupsafe import Markup

    from .. import __version__

    payload = Payload(data.records)
    problems = problems_of(data, payload)
    text: str = template.render(
        title="Test-time adaptation: results",
        version=__version__,
        where=data.store.where,
        csp=Markup(policy(bool(live))),
        css=Markup(_part("page.css")),
        js=Markup(_part("page.js")),
        payload=Markup(payload.json()),
        live=live,
        running=list(running),
        summary=summary_of(data),
        empty=_empty(data),
        contents=_contents(headlines, problems, tables, figures),
        headlines=headlines,
        verdicts=VERDICTS,
        signs=SIGNS,
        problems=problems[:PROBLEMS],
        more_problems=max(0, len(problems) - PROBLEMS),
        suites=_suites(tables, payload, paper, _all_dirty(data)),
        figures=figure_views(list(figures)),
        figures_note=figures_note,
        provenance=provenance_of(data),
    )
    return text


def _all_dirty(data: ReportData) -> bool:
    return bool(data.records) and all(r.provenance.get("dirty") for r in data.records)


def _suites(
    tables: Sequence[Table], payload: Payload, paper: bool, told: bool
) -> list[dict[str, Any]]:
    """Table views by suite; what the summary tells of all runs is not told again below each."""
    found = []
    for suite in dict.fromkeys(t.suite for t in tables):
        facts = suite_facts(suite)
        views = [table_view(t, payload, paper) for t in tables if t.suite == suite]
        for view in views:
            view["notes"] = [n for n in view["notes"] if not (told and n == ALL_DIRTY)]
        title = next(t.heading for t in tables if t.suite == suite)
        found.append({"title": title, "about": facts.about, "tables": views})
    return found


def _contents(
    headlines: Sequence[Headline],
    problems: Sequence[Any],
    tables: Sequence[Table],
    figures: Sequence[Figure],
) -> list[dict[str, str]]:
    suites = {t.suite: t.heading for t in tables}
    groups = [g for g in GROUPS if any(f.group == g for f in figures)]
    return [
        *([{"id": "glance-title", "name": "At a glance"}] if headlines else []),
        *([{"id": "problems-title", "name": "Problems"}] if problems else []),
        *({"id": f"suite-{i}", "name": s} for i, s in enumerate(suites.values(), 1)),
        *({"id": f"figures-{i}", "name": GROUPS[g]} for i, g in enumerate(groups, 1)),
        *([{"id": "provenance-title", "name": "Provenance"}] if tables else []),
    ]


def _empty(data: ReportData) -> dict[str, str] | None:
    if data.records:
        return None
    where = data.store.where
    return {
        "title": "Nothing to show yet",
        "text": f"The store {where!r} holds no sound record. This makes some in under a minute, "
        "without any data:",
        "command": f"fretta run smoke --store {where}\nfretta report {where}",
    }
