"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.markup import escape

from ..experiment.records import Record
from ..experiment.results import rows_of
from .app import console, table

DASH = "–"


def percent(value: float | None, deviation: float | None = None) -> str:
    if value is None:
        return DASH
    return f"{100 * value:.2f}" + (f" ± {100 * deviation:.2f}" if deviation is not None else "")


def _difference(value: float | None, base: float | None) -> str:
    return DASH if value is None or base is None else f"{100 * (value - base):+.2f}"


def print_methods(records: Iterable[Record]) -> None:
    """Accuracy per method, best first, with the difference from `source` and the relative cost."""
    rows = rows_of(records, "methods")
    several = len({row["case"] for row in rows}) > 1
    head = ["method", "accuracy %", "vs source", "macro %", "ECE %", "ms/batch", "cost", "notes"]
    shown = table(*(["case"] if several else []), *head)
    for row in rows:
        base = next((r for r in rows if r["case"] == row["case"] and r["method"] == "source"), {})
        seconds, first = row["seconds_per_batch"], base.get("seconds_per_batch")
        notes = [
            f"{row['failed']} failed" if row["failed"] else "",
            f"{row['collapsed']} collapsed" if row["collapsed"] else "",
            "tuned on target labels (oracle)" if row["tuning"] == "oracle" else "",
            "uncommitted code" if row["dirty"] else "",
        ]
        cells = [
            str(row["method"]),
            percent(row["accuracy"], row["deviation"]),
            _difference(row["accuracy"], base.get("accuracy")),
            percent(row["accuracy_macro"]),
            percent(row["ece"]),
            DASH if seconds is None else f"{1000 * seconds:.1f}",
            f"{seconds / first:.1f}x" if seconds and first else DASH,
            ", ".join(filter(None, notes)),
        ]
        shown.add_row(*([escape(str(row["case"]))] if several else []), *map(escape, cells))
    console.print(shown)


# What fits on a terminal; an export has every column.
SHOWN = {
    "methods": (
        "method",
        "setting",
        "seeds",
        "failed",
        "accuracy",
        "deviation",
        "accuracy_macro",
        "ece",
        "tuning",
    ),
    "runs": (
        "method",
        "setting",
        "seed",
        "status",
        "accuracy",
        "accuracy_macro",
        "ece",
        "tuning",
        "key",
    ),
    "domains": ("method", "seed", "domain", "images", "accuracy", "ece", "nrs_before", "nrs_after"),
}


def print_rows(rows: list[dict[str, Any]], level: str) -> None:
    """The main columns, and suite and case where there are several; long numbers shortened."""
    several = [n for n in ("suite", "case") if len({row.get(n) for row in rows}) > 1]
    columns = [*several, *(n for n in SHOWN[level] if any(r.get(n) is not None for r in rows))]
    shown = table(*columns)
    for row in rows:
        shown.add_row(*(escape(_cell(row.get(name))) for name in columns))
    console.print(shown)


def _cell(value: Any) -> str:
    if value is None:
        return DASH
    return f"{value:.4g}" if isinstance(value, float) else str(value)
