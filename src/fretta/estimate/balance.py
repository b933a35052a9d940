"""Are the classes of a stream about balanced? Nobody knows without labels, but one can suspect.

Without a prior, capacity takes the classes for nearly balanced. On a stream of 80 % cats the source
model is then charged for every cat, and a model whose batch statistics spread the cats over other
classes looks better when it is far worse.

The source model alone is no witness: under shift it calls half of a balanced stream by one name.
Nor is the adapted one: batch statistics even its answers out. But a class that *both* call far more
often than its share of a balanced stream probably is that frequent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .sums import Array

# Beyond 1/C both models may give a class a twentieth of the images, which confusions explain, and
# one standard deviation of a sampled share. docs/estimate.md has the false alarms and the misses.
CONFUSED = 0.05
DOUBT = 1.0


@dataclass(frozen=True)
class Dominant:
    """The class that makes a stream look uneven, and the share of images predicted as it."""

    number: int
    share: float


def dominant_class(source: Array, adapted: Array, images: float) -> Dominant | None:
    """From counts of the predicted classes; None where the classes may well be balanced."""
    even = 1 / len(source)
    both = np.minimum(source, adapted) / images
    number = int(both.argmax())
    allowed = even + CONFUSED + DOUBT * math.sqrt(even * (1 - even) / images)
    if both[number] <= allowed:
        return None
    return Dominant(number, float(max(source[number], adapted[number]) / images))
