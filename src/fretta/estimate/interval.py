"""From sums to an estimate with its interval."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from .balance import dominant_class
from .sums import HEAD, Array, accuracies
from .values import Estimate, decided

REPLICATES = 200  # of the bootstrap
# What confidence and capacity get wrong, as a share of the disagreement: the smallest multiple of
# 0.05 with which 90 % intervals hold in 90 % of the runs of every CIFAR-10 condition of
# benchmarks/estimate.py. docs/estimate.md has the coverage elsewhere.
MODEL_ERROR = 0.2
COLLAPSED = 0.3  # predicted classes beyond the first, effectively, against the source model's


def conclude(
    sums: Array,
    source: float,
    adapted: float,
    prior: Array | None,
    level: float,
    predicted: Array | None = None,
) -> Estimate:
    total = sums.sum(0)
    n, d = int(total[0]), float(total[1] / total[0])
    change = max(-d, min(d, adapted - source))
    z = NormalDist().inv_cdf(0.5 + level / 2)
    # d/n: what labels do given the predictions, each of n images moves the change by -1, 0 or 1
    sampling = between_batches(sums, prior) + d / n
    model = MODEL_ERROR * d / NormalDist().inv_cdf(0.95)
    half = z * math.sqrt(sampling + model**2)
    low, high = max(change - half, -d), min(change + half, d)
    sure, sure_adapted, by_source, by_adapted = np.split(total[HEAD:], 4)
    before, after = effective(by_source), effective(by_adapted)
    collapsed = after - 1 < COLLAPSED * (before - 1)
    uneven = None
    if prior is None and not collapsed and d > 0:
        counts = by_adapted if predicted is None else predicted
        uneven = dominant_class(by_source, counts, bool(sure_adapted.sum() > sure.sum()))
    if uneven is not None:  # all that capacity took off the source model may have been right
        low = -d
    return Estimate(
        source=source,
        adapted=adapted,
        change=change,
        low=low,
        high=high,
        samples=n,
        helps=decided(low, high),
        level=level,
        disagreement=d,
        collapsed=collapsed,
        uneven=uneven,
    )


def between_batches(sums: Array, prior: Array | None) -> float:
    """Variance of the change by a circular block bootstrap: neighboring batches are alike."""
    blocks = len(sums)
    if blocks < 2:
        return 0.0
    length = max(1, round(blocks ** (1 / 3)))
    draws = math.ceil(blocks / length)
    random = np.random.default_rng(0)  # the same sums, the same interval
    starts = random.integers(0, blocks, size=(REPLICATES, draws, 1))
    chosen = ((starts + np.arange(length)) % blocks).reshape(REPLICATES, -1)[:, :blocks]
    weights = np.zeros((REPLICATES, blocks))
    np.add.at(weights, (np.arange(REPLICATES)[:, None], chosen), 1)
    source, adapted = accuracies(weights @ sums, prior)
    return float((adapted - source).var())


def effective(counts: Array) -> float:
    """exp of the entropy of the shares: how many classes are predicted, effectively."""
    total = counts.sum()
    if total <= 0:
        return 0.0
    share = counts[counts > 0] / total
    return float(np.exp(-(share * np.log(share)).sum()))
