"""Hyper-parameters chosen by a stated rule, which becomes part of the result.

result = tune(load_suite("digits"), "g-fret", Store("results"), rule="first-domain")
write_fragment(result, "tuned.toml")
"""

from __future__ import annotations

from .fragments import fragment, write_fragment
from .rules import Rule, label_free, score
from .search import Result, tune
from .space import GRIDS, make_space, parse_grid
from .trials import Trial

__all__ = [
    "GRIDS",
    "Result",
    "Rule",
    "Trial",
    "fragment",
    "label_free",
    "make_space",
    "parse_grid",
    "score",
    "tune",
    "write_fragment",
]
