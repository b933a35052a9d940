"""One HTML page of everything: no network, no other file, names shown and never run."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from ..experiment.records import Record, canonical
from .commands import command, needs
from .data import ReportData
from .glance import VERDICTS
from .palette import color
from .render import table_view
from .suites import suite_facts
from .table import ALL_DIRTY, Table

if TYPE_CHECKING:
    from .figures import Figure
    from .write import Report

VERDICT_SIGNS = {
    "helps": "▲",
    "hurts": "▼",
    "noise": "≈",
    "untested": "○",
    "open": "○",
    "failed": "✕",
}
FIGURE_GROUPS = {"paper": "Figures of the paper", "runs": "Figures of the runs"}
PROBLEMS = 50  # listed on the page
FIGURE_ROWS = 200  # of a figure's numbers on the page; its CSV has all
PROVENANCE = ("fretta", "commit", "code", "python", "torch", "system", "processor", "device")
# Of the code and the machine: shared by all runs made there.
SHARED = (
    *("fretta", "commit", "dirty", "python", "torch", "numpy", "system", "machine", "processor"),
    *("cores", "gpu", "device", "threads"),
)


@functools.cache
def _part(name: str) -> str:
    return (resources.files("fretta") / "report" / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() + "'"


def policy(live: bool) -> str:
    """Only the page's own script and style sheet run, known by their hashes.

    Figures have style attributes and pictures, which can draw but not act.
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
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["color"] = color
    return environment.from_string(_part("page.html"))


def render(report: Report, paper: bool, live: str, running: Sequence[str]) -> str:
    from .. import __version__

    data = report.data
    runs = RunData(data.records)
    problems = _problems(data, runs)
    dirty = all(r.provenance.get("dirty") for r in data.records)
    suites = _suites(report.tables, runs, paper, dirty)
    figures = _figures(report.figures)
    text: str = _template().render(
        title="Test-time adaptation: results",
        version=__version__,
        where=data.store.where,
        csp=Markup(policy(bool(live))),
        css=Markup(_part("page.css")),
        js=Markup(_part("page.js")),
        payload=Markup(runs.json()),
        live=live,
        running=list(running),
        summary=_summary(data),
        empty=not data.records,
        contents=[
            *([("glance-title", "At a glance")] if report.headlines else []),
            *([("problems-title", "Problems")] if problems else []),
            *((f"suite-{i}", suite["title"]) for i, suite in enumerate(suites, 1)),
            *((f"figures-{i}", group["title"]) for i, group in enumerate(figures, 1)),
            *([("provenance-title", "Provenance")] if suites else []),
        ],
        headlines=report.headlines,
        verdicts=VERDICTS,
        signs=VERDICT_SIGNS,
        problems=problems[:PROBLEMS],
        more_problems=max(0, len(problems) - PROBLEMS),
        suites=suites,
        figures=figures,
        figures_note=report.figures_note,
        provenance=_provenance(data),
    )
    return text


def _suites(tables: list[Table], runs: RunData, paper: bool, dirty: bool) -> list[dict[str, Any]]:
    """Tables by suite; what the summary says of all runs is not repeated below each."""
    found = []
    for suite in dict.fromkeys(t.suite for t in tables):
        mine = [t for t in tables if t.suite == suite]
        views = [table_view(t, runs.numbers, paper) for t in mine]
        for view in views:
            view["notes"] = [n for n in view["notes"] if not (dirty and n == ALL_DIRTY)]
        about = suite_facts(suite).about
        found.append({"title": mine[0].heading, "about": about, "tables": views})
    return found


def _figures(figures: Sequence[Figure]) -> list[dict[str, Any]]:
    views = []
    for group, title in FIGURE_GROUPS.items():
        shown = [
            {
                "figure": figure,
                "svg": Markup(figure.svg()),
                "rows": [
                    [_number(v) for v in row]
                    for row in figure.numbers[:FIGURE_ROWS].itertuples(index=False)
                ],
                "left_out": max(0, len(figure.numbers) - FIGURE_ROWS),
            }
            for figure in figures
            if figure.group == group
        ]
        if shown:
            views.append({"title": title, "figures": shown})
    return views


def _number(value: Any) -> str:
    if value is None or value != value:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# ---- counts, problems, provenance ----------------------------------------------------------------


def _summary(data: ReportData) -> str:
    """One line: how much there is, and what is wrong with it."""
    records = data.runs
    failed = sum(r.status != "done" for r in records)
    dirty = sum(bool(r.provenance.get("dirty")) for r in records)
    oracle = sum(r.tags.get("tuning") == "oracle" for r in records)
    suites = len({r.tags.get("suite") for r in data.records})
    times = [int(t) for r in records if (t := r.provenance.get("finished"))]
    parts = [
        f"{_many(len(records), 'run')} in {_many(suites, 'suite')}",
        f"{failed} failed" if failed else "",
        f"{_many(len(data.damaged), 'file')} damaged" if data.damaged else "",
        f"{dirty} from uncommitted code" if dirty else "",
        f"{oracle} tuned on target labels" if oracle else "",
        _period(min(times), max(times)) if times else "",
    ]
    return ", ".join(filter(None, parts)) + "."


def _many(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _period(first: int, last: int) -> str:
    start, end = (datetime.fromtimestamp(t, UTC) for t in (first, last))
    if start.date() != end.date():
        return f"made {start:%Y-%m-%d} to {end:%Y-%m-%d}"
    hours = dict.fromkeys(f"{t:%H:%M}" for t in (start, end))
    return f"made on {start:%Y-%m-%d}, {' to '.join(hours)} UTC"


def _problems(data: ReportData, runs: RunData) -> list[dict[str, Any]]:
    """Damaged files and failed runs."""
    found: list[dict[str, Any]] = [
        {"kind": "Damaged:", "name": message, "text": "", "run": None} for message in data.damaged
    ]
    for record in (r for r in data.runs if r.status != "done"):
        tags = record.tags
        label = tags.get("label") or record.run["method"]
        name = f"{tags.get('suite') or 'run'}, {tags.get('case') or ''}: {label}"
        last = (record.error.strip().splitlines() or ["no message"])[-1][:300]
        number = runs.numbers([record.key], str(tags.get("suite") or ""))
        name = f"{name}, seed {record.run['seed']}"
        found.append({"kind": "Failed:", "name": name, "text": last, "run": number})
    return found


def _provenance(data: ReportData) -> list[list[str]] | None:
    """A table: one line per combination of code, versions and hardware, with the number of runs."""
    counts: Counter[tuple[str, ...]] = Counter()
    for record in data.runs:
        facts = record.provenance
        dirty = facts.get("dirty")
        code = "unknown" if dirty is None else "uncommitted changes" if dirty else "as committed"
        known = {**facts, "commit": str(facts.get("commit") or "–")[:10], "code": code}
        counts[tuple(str(known.get(name) or "–") for name in PROVENANCE)] += 1
    if not counts:
        return None
    return [["runs", *PROVENANCE], *([str(n), *line] for line, n in counts.most_common())]


# ---- the data of the page ------------------------------------------------------------------------


class RunData:
    """What the page knows of each run, small: what many runs share is stored once."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.runs: list[dict[str, Any]] = []
        self.shared: dict[str, list[Any]] = {"groups": [], "provenance": []}
        self._index: dict[str, int] = {}  # of what is shared, by its JSON
        self._number: dict[tuple[str, str], int] = {}  # by suite and key
        for record in records:
            self._number[str(record.tags.get("suite") or ""), record.key] = len(self.runs)
            self._number.setdefault(("", record.key), len(self.runs))  # of any suite
            self.runs.append(self._run(record))

    def _shared(self, kind: str, value: Any) -> int:
        text = kind + canonical(value)
        if text not in self._index:
            self._index[text] = len(self.shared[kind])
            self.shared[kind].append(value)
        return self._index[text]

    def _run(self, record: Record) -> dict[str, Any]:
        facts, overall = record.provenance, record.overall
        group = {
            "suite": record.tags.get("suite") or "",
            "case": record.tags.get("case") or "",
            "label": record.tags.get("label") or record.run["method"],
            "tuning": record.tags.get("tuning") or "",
            "run": {k: v for k, v in record.run.items() if k != "seed"},
            "settings": record.settings,
            "domains": [str(row.get("domain")) for row in record.rows],
            "command": command(record),
            "needs": needs(record),
        }
        return {
            "key": record.key,
            "group": self._shared("groups", group),
            "from": self._shared("provenance", {k: facts[k] for k in SHARED if k in facts}),
            "seed": record.run["seed"],
            "status": record.status,
            "accuracy": _rounded(overall.get("mean_over_domains")),
            "domains": [_rounded(row.get("accuracy")) for row in record.rows],
            "seconds": _rounded(overall.get("seconds")),
            "own": {k: v for k, v in facts.items() if k not in SHARED and v is not None},
            "error": record.error.strip()[-2000:],
        }

    def numbers(self, keys: list[str], suite: str = "") -> str:
        """The runs of these keys as the suite calls them, or as any does."""
        found = [self._number.get((suite, k), self._number.get(("", k))) for k in keys]
        return " ".join(str(n) for n in found if n is not None)

    def json(self) -> str:
        """For a <script> of JSON: no sign in it can end the element or open another."""
        content = {"runs": self.runs, **self.shared}
        text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
        for sign in "<>&\u2028\u2029":
            text = text.replace(sign, f"\\u{ord(sign):04x}")
        return text


def _rounded(value: Any) -> float | None:
    return round(float(value), 5) if isinstance(value, int | float) else None
