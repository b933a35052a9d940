"""compare.html, and the table that it shares with the terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..data.listing import shown
from ..deploy.page import class_accuracies, predicted_shares, render
from ..estimate.verdict import points, reason, tests_used, unevenness, verdict
from .tables import DASH

if TYPE_CHECKING:
    from ..estimate.compare import Compared
    from .compare import Images

SOURCE_MODEL = "the source model"
LISTED = 50  # unreadable files


def table_of(rows: list[Compared], names: list[str]) -> tuple[list[str], list[list[str]]]:
    """(head, rows): measured numbers where labels are known, and beside them the estimate."""
    uneven = any(reason(row.estimate, names) for row in rows)
    if _measured(rows):
        head, cells = ["p", "accuracy", "without labels"], [_measured_cells(r, names) for r in rows]
    else:
        head, cells = ["accuracy"], [_estimated_cells(row, names, uneven) for row in rows]
    return ["method", "verdict", "change", "low", "high", *head, "ms/batch"], [
        [row.method, row.verdict, *middle, f"{1000 * row.seconds_per_batch:.0f}"]
        for row, middle in zip(rows, cells, strict=True)
    ]


def _measured_cells(row: Compared, names: list[str]) -> list[str]:
    measured, estimate = row.measured, row.estimate
    level = DASH if row.accuracy is None else f"{100 * row.accuracy:.1f}"
    if measured is None:
        return [*[DASH] * 4, level, DASH]
    numbers = [points(value) for value in (measured.change, *measured.interval)]
    without = "uneven" if reason(estimate, names) else verdict(estimate)
    if estimate.helps is not None:
        without += f" {points(estimate.change)}"
    return [*numbers, measured.p_text.removeprefix("p ").removeprefix("= "), level, without]


def _estimated_cells(row: Compared, names: list[str], uneven: bool) -> list[str]:
    """Numbers that cannot be trusted are not shown."""
    estimate, answered = row.estimate, row.answered
    level = DASH if uneven else f"{100 * estimate.adapted:.1f}"
    if answered is not None:
        return [*map(points, (answered.change, answered.low, answered.high)), level]
    if row.reference or reason(estimate, names):
        return [*[DASH] * 3, level]
    return [*map(points, (estimate.change, estimate.low, estimate.high)), level]


def note_on(rows: list[Compared], level: float) -> str:
    """What the numbers of the table are."""
    meant = f"low to high is meant to hold {100 * level:g} % of the time"
    if _measured(rows):
        return (
            f"Measured with labels, in points of accuracy; {meant}. {tests_used(level)} The"
            " column 'without labels' has the estimate."
        )
    known = [row.answered.images for row in rows if row.answered is not None]
    how = f"From {max(known):,} answers" if known else "Estimated without labels"
    return f"{how}, in points of accuracy; {meant}."


def _measured(rows: list[Compared]) -> bool:
    return any(row.accuracy is not None for row in rows)


# ---- the page -----------------------------------------------------------------------------------


def page(rows: list[Compared], images: Images, facts: dict[str, Any]) -> str:
    names = images.labels.names
    source = next(row for row in rows if row.reference)
    others = [row for row in rows if not row.reference]
    best = others[0] if others else source
    head, methods = table_of(rows, names)
    ordered = [source, *others]
    return render(
        "compare.html",
        title=f"{facts['model']}: {', '.join(r.method for r in others) or SOURCE_MODEL} compared",
        lead=f"{source.estimate.samples:,} images from {facts['data']}.",
        answer=facts["answer"],
        head=head,
        methods=methods,
        note=note_on(rows, source.estimate.level),
        balance=_balance(rows, names, facts),
        best=best.method,
        shares=predicted_shares(names, source.predicted, best.predicted),
        labels=[row.method for row in ordered],
        accuracies=class_accuracies(names, source.labeled, [row.right for row in ordered]),
        unreadable=[(shown(name), why) for name, why in images.unreadable[:LISTED]],
        more_unreadable=len(images.unreadable) - LISTED,
        settings=[
            *((name, facts[name]) for name in ("model", "data", "images")),
            *(
                (f"settings of {row.method}", json.dumps(row.hyperparameters))
                for row in rows
                if row.hyperparameters
            ),
        ],
    )


def _balance(rows: list[Compared], names: list[str], facts: dict[str, Any]) -> str:
    uneven = next((row.estimate.uneven for row in rows if row.estimate.uneven is not None), None)
    if facts["prior"] is not None:
        return "The shares of the classes were given."
    if uneven is not None:
        found = unevenness(uneven, names)
        return f"{found[:1].upper()}{found[1:]}. Without labels, give their shares with --prior."
    return "No class is so frequent with both models that the classes look uneven."
