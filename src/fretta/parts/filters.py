"""Thresholds that follow the number of classes, and warnings about ones that cannot filter."""

from __future__ import annotations

import math
from itertools import pairwise

from ..errors import warn

# EATA's redundancy margin ε as published for CIFAR-10, CIFAR-100 and ImageNet: near 1/√C.
_MARGINS = ((10, 0.4), (100, 0.1), (1000, 0.05))


def published_margin(classes: int) -> float:
    """ε for any number of classes: log-log interpolation of the published values."""
    points = [(math.log(c), math.log(margin)) for c, margin in _MARGINS]
    at = math.log(classes)
    pairs = list(pairwise(points))
    (x0, y0), (x1, y1) = next((p for p in pairs if at <= p[1][0]), pairs[-1])
    return min(math.exp(y0 + (y1 - y0) * (at - x0) / (x1 - x0)), 0.9)


def caution_entropy_margin(method: str, fraction: float) -> None:
    """Entropies lie in [0, ln C]: a margin outside (0, ln C) keeps everything or nothing."""
    if fraction >= 1:
        warn(
            f"{method}: the entropy margin is {fraction:.3g} of ln C, and no entropy exceeds ln C: "
            "this filter never removes a sample"
        )
    if fraction <= 0:
        warn(
            f"{method}: the entropy margin is {fraction:.3g} of ln C: this filter removes every"
            " sample"
        )
