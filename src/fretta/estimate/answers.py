"""A few labels decide what the predictions cannot: which images to label, and what follows.

Where both models predict the same, nothing changes. So the change of accuracy is the sum over the
images on which they differ of (adapted model right) - (source model right), per image of the
stream. These images are divided into strata, neighbors by what the two models predict; some of each
are labeled, and the mean of each stratum counts by its share of the stream.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .verdict import HELPS, exact_p, points

Classes = NDArray[np.int64]

FEWEST, MOST = 50, 200  # questions
PER_STRATUM = 10
LEAST = 2  # answers in a stratum; below, it is merged with its neighbor


@dataclass(frozen=True)
class Question:
    """An image to label, and the share of the stream that its answer stands for."""

    image: int
    stratum: int
    weight: float


def wanted(disagreement: float, change: float, level: float) -> int:
    """So many answers that a change of this size would leave the interval around 0."""
    z = NormalDist().inv_cdf(0.5 + level / 2)
    enough = (z * disagreement / max(abs(change), 1e-9)) ** 2
    return int(min(MOST, max(FEWEST, math.ceil(enough))))


def questions(source: Classes, adapted: Sequence[Classes], number: int) -> list[Question]:
    """Images to label, in an order of which any beginning is spread over the strata.

    source, adapted   predicted classes of all images, by the source model and by each method; the
                      strata follow the first method, and the answers serve all of them
    """
    differ = np.flatnonzero(np.any([a != source for a in adapted], axis=0))
    number = min(number, len(differ))
    if not number:
        return []
    random = np.random.RandomState(0)  # its numbers are the same with every numpy version
    shuffled = random.permutation(differ)
    order = shuffled[np.lexsort((adapted[0][shuffled], source[shuffled]))]
    strata = np.array_split(order, max(1, number // PER_STRATUM))
    asked = [len(part) for part in np.array_split(np.arange(number), len(strata))]
    found: list[tuple[int, Question]] = []
    for h, (images, n) in enumerate(zip(strata, asked, strict=True)):
        weight = len(images) / n / len(source)
        chosen = random.permutation(images)[:n]
        found += [(rank, Question(int(i), h, weight)) for rank, i in enumerate(chosen)]
    return [question for _, question in sorted(found, key=lambda f: (f[0], f[1].stratum))]


@dataclass(frozen=True)
class Answered:
    """The change of accuracy from answers, with its interval."""

    images: int  # answers
    asked: int
    gained: int  # the source model wrong, the adapted one right
    lost: int
    change: float
    low: float
    high: float
    level: float = 0.9
    p: float = field(default=1.0)  # exact McNemar test, each answer counted once

    @property
    def helps(self) -> bool | None:
        """Interval and test must agree: with few answers the interval alone is too short."""
        if self.p > 1 - self.level or self.low <= 0 <= self.high:
            return None
        return self.low > 0

    def __str__(self) -> str:
        some = f"{self.images:,}" + (f" of {self.asked:,}" if self.images < self.asked else "")
        return (
            f"{HELPS[self.helps]} (from {some} answers): {points(self.change)} points"
            f" ({points(self.low)} to {points(self.high)}); adapting gained {self.gained:,} and"
            f" lost {self.lost:,}"
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": HELPS[self.helps]}


def verdict_of(
    strata: Classes,
    weights: NDArray[np.float64],
    source: Classes,
    adapted: Classes,
    labels: Classes,
    level: float = 0.9,
) -> Answered:
    """All of the images that were asked for; `labels` is -1 where there is no answer."""
    known = labels >= 0
    if not known.any():
        raise ConfigError("no image was answered; fill in the column `label` of some rows")
    gain = ((adapted == labels) & (source != labels) & known).astype(float)
    loss = ((adapted != labels) & (source == labels) & known).astype(float)
    n, total = int(known.sum()), float(weights.sum())
    change = variance = 0.0
    for rows in _merged(strata, known):
        share, answers = float(weights[rows].sum()), int(known[rows].sum())
        g, ls = float(gain[rows].sum()), float(loss[rows].sum())
        change += share * (g - ls) / answers
        # half a gain and half a loss more, in all: a few answers that agree are not certain
        more = answers / n
        p, q = ((value + more / 2) / (answers + more) for value in (g, ls))
        variance += share**2 * (p + q - (p - q) ** 2) / answers
    half = NormalDist().inv_cdf(0.5 + level / 2) * math.sqrt(variance)
    low, high = max(-total, change - half), min(total, change + half)
    gained, lost = int(gain.sum()), int(loss.sum())
    test = exact_p(gained, lost)
    return Answered(n, len(labels), gained, lost, change, low, high, level, test)


def _merged(strata: Classes, known: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Rows of each stratum; neighbors are joined until each has enough answers."""
    groups: list[NDArray[np.int64]] = []
    for number in np.unique(strata):
        rows = np.flatnonzero(strata == number)
        if groups and known[groups[-1]].sum() < LEAST:
            groups[-1] = np.concatenate([groups[-1], rows])
        else:
            groups.append(rows)
    if len(groups) > 1 and known[groups[-1]].sum() < LEAST:
        last = groups.pop()
        groups[-1] = np.concatenate([groups[-1], last])
    return groups
