"""The values to try: the paper's grids, or those that are given."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from ...api import build_method
from ...errors import ConfigError
from ...methods import find_method

Settings = dict[str, Any]
Space = dict[str, list[Any]]

# The grids of the paper, in the order in which the greedy search walks them.
GRIDS: Space = {
    "lr": [float(f"{m}e{e}") for e in range(-7, -1) for m in (1, 5)],
    "lam": [float(f"1e{e}") for e in range(-6, 3)],
    "k1": [1, 5, 10, 15, 20, 50, 100, 200, 300],
    "k2": [0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
}


def make_space(
    method: str, base: Mapping[str, Any], grid: Mapping[str, Sequence[Any]] | None = None
) -> Space:
    """The values to try, each checked now rather than after an hour of runs.

    The paper's parameters come first, in its order; others follow as given.
    """
    build_method(method, {})  # an unknown name is an error that lists the known ones
    if grid is None:
        fields = find_method(method).field_names()
        space = {name: values for name, values in GRIDS.items() if name in fields}
        if not space:
            raise ConfigError(
                f"{method} has none of {', '.join(GRIDS)}, so there is nothing of the paper's grids"
                f" to tune; give grid= over its own hyper-parameters: {', '.join(fields)}"
            )
        return space
    if not grid:
        raise ConfigError("the grid is empty; give at least one hyper-parameter with its values")
    space = {}
    for name in sorted(grid, key=lambda name: [*GRIDS, name].index(name)):
        values = grid[name]
        if isinstance(values, str | bytes) or not isinstance(values, Sequence) or not values:
            raise ConfigError(f"grid: {name}={values!r}; a list of at least one value is expected")
        for value in values:
            number = isinstance(value, int | float) and math.isfinite(value)
            if not number and not isinstance(value, str):
                raise ConfigError(
                    f"grid: {name} has {value!r}; finite numbers, text, true or false can be tried"
                )
            build_method(method, {**base, name: value}).check()
        space[name] = list(dict.fromkeys(values))
    return space


def parse_grid(pairs: Sequence[str]) -> Space:
    """A grid as typed on a command line: `lr=1e-4,1e-3`, values spelled as in TOML."""
    grid: Space = {}
    for pair in pairs:
        name, _, values = (part.strip() for part in pair.partition("="))
        try:
            found = tomllib.loads(f"values = [{values}]")["values"]
        except tomllib.TOMLDecodeError:
            found = [word.strip() for word in values.split(",") if word.strip()]
        if not name or not found or name in grid:
            raise ConfigError(f"--grid {pair!r}; write NAME=VALUE,VALUE, each name once")
        grid[name] = found
    return grid
