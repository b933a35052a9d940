"""What was found, in words: the same on the terminal, on pages and in files."""

from __future__ import annotations

from collections.abc import Sequence

from .balance import Dominant
from .paired import Measured
from .values import Estimate

HELPS = {True: "helps", False: "hurts", None: "cannot tell"}
UNCHANGED = "no change"  # no prediction differs from the source model's


def points(value: float) -> str:
    return f"{round(100 * value, 1) + 0.0:+.1f}"  # + 0.0: never -0.0


def verdict(estimate: Estimate, measured: Measured | None = None) -> str:
    """A word or two: helps, hurts, cannot tell, collapsed, no change. Labels have the last word."""
    if measured is not None:
        return HELPS[measured.helps]
    if estimate.collapsed:
        return "collapsed"
    return UNCHANGED if not estimate.disagreement else HELPS[estimate.helps]


def unevenness(found: Dominant, names: Sequence[str]) -> str:
    name = names[found.number] if found.number < len(names) else f"class {found.number}"
    return f"classes look uneven ({100 * found.share:.0f} % predicted {name!r})"


def reason(estimate: Estimate, names: Sequence[str]) -> str:
    """Why an estimate cannot tell, where there is more to say than that its interval holds 0."""
    if verdict(estimate) != HELPS[None] or estimate.uneven is None:
        return ""
    return unevenness(estimate.uneven, names)


def estimated_text(estimate: Estimate, names: Sequence[str]) -> str:
    why = reason(estimate, names)
    if why:
        return f"cannot tell: {why}"
    word = verdict(estimate)
    if word == UNCHANGED:
        return "no prediction differs from the source model's"
    ends = f"{points(estimate.low)} to {points(estimate.high)}"
    text = f"{points(estimate.change)} points of accuracy ({ends}): "
    if word == "collapsed":
        return text + "the adapted model collapsed, it predicts far fewer classes"
    return text + (word if estimate.helps is None else f"adapting {word}")


def how_measured(level: float) -> str:
    return (
        "Interval for paired proportions after Agresti and Min, exact McNemar test; a verdict needs"
        f" p below {1 - level:g}."
    )


def measured_text(measured: Measured) -> str:
    low, high = map(points, measured.interval)
    chance = "p < 0.001" if measured.p < 0.001 else f"p = {measured.p:.3f}"
    return (
        f"{HELPS[measured.helps]} (measured): {points(measured.change)} points ({low} to {high}),"
        f" {chance} on {measured.images:,} labeled images"
    )
