"""compare.html, and the table that it shares with the terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..data.listing import shown
from ..deploy.html import class_table, document, e, section, share_table, table
from ..estimate.words import how_measured, points, reason, unevenness, verdict
from .tables import DASH

if TYPE_CHECKING:
    from ..estimate.compare import Compared
    from .compare import Images

LISTED = 50  # unreadable files


def table_of(rows: list[Compared], names: list[str]) -> tuple[list[str], list[list[str]]]:
    """(head, rows): measured numbers where labels are known, and beside them the estimate."""
    head = ["method", "verdict", "change", "low", "high"]
    if _measured(rows):
        head += ["p", "accuracy", "without labels"]
        cells = [_measured_cells(row, names) for row in rows]
    else:
        head += ["accuracy"]
        uneven = any(reason(row.estimate, names) for row in rows)
        cells = [_estimated_cells(row, names, uneven) for row in rows]
    first = [[row.method, row.verdict] for row in rows]
    last = [[f"{1000 * row.seconds_per_batch:.0f}"] for row in rows]
    return [*head, "ms/batch"], [a + b + c for a, b, c in zip(first, cells, last, strict=True)]


def _measured_cells(row: Compared, names: list[str]) -> list[str]:
    measured, estimate = row.measured, row.estimate
    level = DASH if row.accuracy is None else f"{100 * row.accuracy:.1f}"
    if measured is None:
        return [*[DASH] * 4, level, DASH]
    numbers = [points(value) for value in (measured.change, *measured.interval)]
    chance = "< 0.001" if measured.p < 0.001 else f"{measured.p:.3f}"
    without = "uneven" if reason(estimate, names) else verdict(estimate)
    if estimate.helps is not None:
        without += f" {points(estimate.change)}"
    return [*numbers, chance, level, without]


def _estimated_cells(row: Compared, names: list[str], uneven: bool) -> list[str]:
    """Numbers that cannot be trusted are not shown."""
    estimate = row.estimate
    level = DASH if uneven else f"{100 * estimate.adapted:.1f}"
    if row.reference or reason(estimate, names):
        return [*[DASH] * 3, level]
    return [*map(points, (estimate.change, estimate.low, estimate.high)), level]


def note_on(rows: list[Compared], level: float) -> str:
    """What the numbers of the table are."""
    meant = f"low to high is meant to hold {100 * level:g} % of the time"
    if _measured(rows):
        return (
            f"Measured with labels, in points of accuracy; {meant}. {how_measured(level)} The"
            " column 'without labels' has what would have been said without them."
        )
    return f"Estimated without labels, in points of accuracy; {meant}."


def _measured(rows: list[Compared]) -> bool:
    return any(row.accuracy is not None for row in rows)


# ---- the page -----------------------------------------------------------------------------------


def page(rows: list[Compared], images: Images, facts: dict[str, Any]) -> str:
    names, level = images.labels.names, rows[0].estimate.level
    methods = ", ".join(row.method for row in rows if not row.reference)
    title = f"{facts['model']}: {methods or 'the source model'} compared"
    lead = f"{rows[0].estimate.samples:,} images from {facts['data']}."
    body = [
        f"<h1>{e(title)}</h1>",
        f"<p class='lead'>{e(lead)}</p>",
        *section("Does adapting help?", f"<p><b>{e(facts['answer'])}</b></p>"),
        *section("Methods", _methods(rows, names, level)),
        *section("Predicted classes", _balance(rows, images, facts)),
        *section("Accuracy by class", _by_class(rows, names)),
        *section("Files that could not be read", _unreadable(images)),
        *section("Settings", table(["setting", "value"], _settings(rows, facts))),
    ]
    return document(title, body)


def _methods(rows: list[Compared], names: list[str], level: float) -> str:
    return table(*table_of(rows, names), short=True) + f"<p>{e(note_on(rows, level))}</p>"


def _balance(rows: list[Compared], images: Images, facts: dict[str, Any]) -> str:
    """Shares of the predicted classes by the source model and the best other one."""
    names = images.labels.names
    source = next(row for row in rows if row.reference)
    best = next((row for row in rows if not row.reference), source)
    uneven = next((row.estimate.uneven for row in rows if row.estimate.uneven is not None), None)
    if facts["prior"] is not None:
        text = "The shares of the classes were given."
    elif uneven is not None:
        found = unevenness(uneven, names)
        text = f"{found[:1].upper()}{found[1:]}. Without labels, give their shares with --prior."
    else:
        text = "No class is so frequent with both models that the classes look uneven."
    heads = "source model", best.method
    return f"<p>{e(text)}</p>" + share_table(names, _shares(source), _shares(best), heads)


def _shares(row: Compared) -> dict[int, float]:
    return {c: n / sum(row.predicted) for c, n in enumerate(row.predicted) if n}


def _by_class(rows: list[Compared], names: list[str]) -> str:
    ordered = sorted(rows, key=lambda row: not row.reference)  # the source model first
    counts = {
        c: [n, *(row.right[c] for row in ordered)] for c, n in enumerate(ordered[0].labeled) if n
    }
    return class_table([row.method for row in ordered], names, counts)


def _unreadable(images: Images) -> str:
    found = images.unreadable
    if not found:
        return ""
    note = f"<p>{len(found) - LISTED:,} more.</p>" if len(found) > LISTED else ""
    return table(["file", "why"], [[shown(n), why] for n, why in found[:LISTED]]) + note


def _settings(rows: list[Compared], facts: dict[str, Any]) -> list[list[str]]:
    return [
        ["model", str(facts["model"])],
        ["data", str(facts["data"])],
        ["images", str(facts["images"])],
        *(
            [f"settings of {row.method}", json.dumps(row.hyperparameters)]
            for row in rows
            if row.hyperparameters
        ),
    ]
