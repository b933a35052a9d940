"""Searches over a grid: one parameter after another, or every combination."""

from __future__ import annotations

import itertools
from typing import Any

from .space import Space
from .trials import Trials, best_of


def greedy(trials: Trials, space: Space) -> None:
    """One parameter after another, the others at the best found so far.

    The sum of the lengths of the grids, not their product: 36 trials instead of 5,832 for g-fret.
    It can miss a setting that is good only in combination.
    """
    current: dict[str, Any] = {}
    start = trials.run([current])
    for name, values in space.items():
        tried = [{**current, name: value} for value in values]
        found = trials.run(tried)
        best = best_of([*start, *found])
        if best is None:
            return  # nothing runs: further parameters would not either
        if best in found:
            current, start = tried[found.index(best)], [best]


def product(trials: Trials, space: Space) -> None:
    """Every combination."""
    combinations = itertools.product(*space.values())
    trials.run([{}, *(dict(zip(space, values, strict=True)) for values in combinations)])
