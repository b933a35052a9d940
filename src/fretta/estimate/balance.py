"""Are the classes of a stream about balanced? Nobody knows without labels, but one can suspect.

Without a prior, capacity takes the classes for nearly balanced. On a stream of 80 % cats the source
model is then charged for every cat, and a model whose batch statistics spread the cats over other
classes looks better when it is far worse.

The source model alone is no witness: under shift it calls half of a balanced stream by one name.
So the adapted model is asked too, although batch statistics even its answers out. The classes look
uneven if the source model calls one of them far more often than its share of a balanced stream, and

    the adapted model does so too, or
    it still does so a little, and is less sure of its answers than the source model: what seems to
    help is then only that the classes are taken for balanced.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .sums import Array

# A little: by one standard deviation of a sampled share. Far more often: by a twentieth of the
# images on top, which confusions explain. docs/estimate.md has the false alarms and the misses.
CONFUSED = 0.05
DOUBT = 1.0


@dataclass(frozen=True)
class Dominant:
    """The class that makes a stream look uneven, and the share of images predicted as it."""

    number: int
    share: float


def dominant_class(source: Array, adapted: Array, surer: bool) -> Dominant | None:
    """From the counts of predicted classes; None where the classes may well be balanced.

    The source model may have seen fewer images than the adapted one.

    surer  whether the adapted model's mean confidence is above the source model's
    """
    even = 1 / len(source)
    counts = np.stack([source, adapted])
    images = counts.sum(1, keepdims=True)
    shares = counts / images
    more = even + DOUBT * np.sqrt(even * (1 - even) / images[:, 0])
    suspect = shares[0] > more[0] + CONFUSED
    suspect &= shares[1] > more[1] + (CONFUSED if surer else 0)
    if not suspect.any():
        return None
    number = int(np.where(suspect, shares.sum(0), 0).argmax())
    return Dominant(number, float(shares[:, number].max()))
