"""Which values are tried: the paper's grids, or one's own."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from ...api import build_method
from ...errors import ConfigError
from ...methods import find_method

# The grids of the paper, in the order in which the greedy search walks them.
GRIDS: dict[str, list[Any]] = {
    "lr": [float(f"{m}e{e}") for e in range(-7, -1) for m in (1, 5)],
    "lam": [float(f"1e{e}") for e in range(-6, 3)],
    "k1": [1, 5, 10, 15, 20, 50, 100, 200, 300],
    "k2": [0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
}

Space = dict[str, list[Any]]


def paper_space(method: str) -> Space:
    """The paper's grids for the hyper-parameters this method has."""
    build_method(method, {})  # an unknown name is an error that lists the known ones
    fields = find_method(method).field_names()
    return {name: list(values) for name, values in GRIDS.items() if name in fields}


def make_space(
    method: str, base: Mapping[str, Any], grid: Mapping[str, Sequence[Any]] | None = None
) -> Space:
    """The values to try, each checked now rather than after an hour of runs.

    The paper's parameters come first, in its order; others follow as given.
    """
    build_method(method, {})
    if grid is None:
        space = paper_space(method)
        if not space:
            fields = find_method(method).field_names()
            raise ConfigError(
                f"{method} has none of {', '.join(GRIDS)}, so there is nothing of the paper's grids"
                f" to tune; give grid= over its own hyper-parameters: {', '.join(fields)}"
            )
        return space
    names = [n for n in GRIDS if n in grid] + [n for n in grid if n not in GRIDS]
    space = {name: _values(name, grid[name]) for name in names}
    if not space:
        raise ConfigError("the grid is empty; give at least one hyper-parameter with its values")
    for name, values in space.items():
        for value in values:
            build_method(method, {**base, name: value}).check()
    return space


def parse_grid(pairs: Sequence[str]) -> Space:
    """A grid as typed on a command line: `lr=1e-4,1e-3`, values spelled as in TOML."""
    grid: Space = {}
    for pair in pairs:
        name, separator, values = pair.partition("=")
        try:
            found = tomllib.loads(f"values = [{values}]")["values"]
        except tomllib.TOMLDecodeError:
            found = [word.strip() for word in values.split(",") if word.strip()]
        if not separator or not name.strip() or not found or name.strip() in grid:
            raise ConfigError(f"--grid {pair!r}; write NAME=VALUE,VALUE, each name once")
        grid[name.strip()] = found
    return grid


def size(space: Space, product: bool) -> int:
    """How many settings a search over the grid tries at most, beside the one it starts from."""
    counts = [len(values) for values in space.values()]
    return math.prod(counts) if product else sum(counts)


def _values(name: str, values: Any) -> list[Any]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence) or not values:
        raise ConfigError(f"grid: {name}={values!r}; a list of at least one value is expected")
    found: list[Any] = []
    for value in values:
        if not isinstance(value, (bool, int, float, str)):
            raise ConfigError(
                f"grid: {name} has {value!r}; numbers, text, true or false can be tried"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"grid: {name} has {value!r}; finite numbers are expected")
        if value not in found:
            found.append(value)
    return found
