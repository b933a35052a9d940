"""Where labels find room."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Box = tuple[float, float, float, float]


def free(box: Box, taken: Sequence[Box]) -> bool:
    """Whether a box (left, bottom, right, top) touches none of the others."""
    return all(box[2] <= t[0] or t[2] <= box[0] or box[3] <= t[1] or t[3] <= box[1] for t in taken)


def spread(at: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions as little as needed to stand `gap` apart, within [low, high] if they fit."""
    order = np.argsort(at, kind="stable")
    clusters: list[tuple[float, int]] = []  # (middle, members) of labels that touch
    for index in order:
        clusters.append((float(at[index]), 1))
        while len(clusters) > 1:
            (below, n), (above, m) = clusters[-2:]
            if above - below >= gap * (n + m) / 2:
                break
            clusters[-2:] = [((below * n + above * m) / (n + m), n + m)]
    placed = [mid + gap * (k - (n - 1) / 2) for mid, n in clusters for k in range(n)]
    last = len(placed) - 1
    if gap * last <= high - low:  # bounds that are `gap` apart themselves keep the distances
        placed = [max(p, low + gap * k) for k, p in enumerate(placed)]
        placed = [min(p, high - gap * (last - k)) for k, p in enumerate(placed)]
    result = [0.0] * len(placed)
    for rank, index in enumerate(order):
        result[int(index)] = placed[rank]
    return result
