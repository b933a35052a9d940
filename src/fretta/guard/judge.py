"""Is the adapted model worse than the source model? Pure functions of what was measured.

What tells harm from help without labels, measured over healthy and harmful streams (docs/guard.md):

    entropy    Adaptation that helps makes predictions more certain than the source model's, or
               leaves them as certain. Batch statistics of two images, or of one class, make them
               much less certain.
    marginal   A collapsed model predicts few classes where the source model, on the same images,
               predicts more. Few classes alone mean nothing: the stream may bring one at a time,
               and then the source model predicts few as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .guard import Guard

FEW = 16  # images; fewer have no marginal to speak of


@dataclass(frozen=True)
class Harm:
    kind: str  # "not finite", "drift", "entropy", "collapse" or "source"
    reason: str


@dataclass(frozen=True)
class Comparison:
    """The adapted and the source model on the same images. Entropies in units of ln C."""

    images: int
    entropy: float
    source_entropy: float
    changed: float
    marginal: float
    source_marginal: float


def judge(
    seen: Comparison,
    guard: Guard,
    own_past: float | None = None,
    source_past: float | None = None,
) -> Harm | None:
    """The harm that a comparison shows, if any.

    own_past, source_past   marginal entropies of earlier, accepted predictions, in ln C
    """
    if not math.isfinite(seen.entropy):
        return Harm("not finite", "predictions are not finite")
    gap = seen.entropy - seen.source_entropy
    floor = guard.entropy_floor * (2.5 if _lost(seen, guard) else 1.0)
    if gap > guard.entropy_gap and seen.entropy > floor:
        return Harm(
            "entropy",
            f"predictions are much less certain than the source model's: entropy"
            f" {seen.entropy:.2f} against {seen.source_entropy:.2f} of ln C on {seen.images}"
            " images",
        )
    if seen.images < FEW:
        return None
    if seen.source_marginal - seen.marginal > guard.collapse_gap:
        return Harm(
            "collapse",
            f"predictions collapse to few classes: marginal entropy {seen.marginal:.2f} against"
            f" {seen.source_marginal:.2f} of ln C of the source model on {seen.images} images",
        )
    if own_past is not None and source_past is not None:
        explained = max(0.0, source_past - seen.source_marginal)
        if own_past - seen.marginal > guard.collapse_gap + explained:
            return Harm(
                "collapse",
                f"predictions collapse to few classes: marginal entropy {seen.marginal:.2f} of"
                f" ln C, {own_past:.2f} before, and the source model sees no such change",
            )
    return None


def trusted_again(seen: Comparison, guard: Guard) -> bool:
    """Stricter, to come back from the source model: at least as certain, hardly fewer classes."""
    floor = 0.75 * 2.5 * guard.entropy_floor if _lost(seen, guard) else 0.0
    certain = seen.entropy <= max(seen.source_entropy, floor)
    return certain and seen.source_marginal - seen.marginal <= 0.5 * guard.collapse_gap


def _lost(seen: Comparison, guard: Guard) -> bool:
    """A source model that sees one class in everything is as likely lost as the stream is of one
    class; its certainty then counts for less."""
    return seen.source_marginal < 2 * guard.collapse_gap
