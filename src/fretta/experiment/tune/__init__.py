"""Honest tuning: what a setting was chosen by is part of the result.

result = tune(load_suite("digits"), "g-fret", Store("results"), rule="first-domain")
write_fragment(result, "tuned.toml")
"""

from __future__ import annotations

from .fragment import fragment, write_fragment
from .rules import label_free
from .space import GRIDS, make_space, paper_space, parse_grid, size
from .start import tune
from .values import Result, Rule, Trial

__all__ = [
    "GRIDS",
    "Result",
    "Rule",
    "Trial",
    "fragment",
    "label_free",
    "make_space",
    "paper_space",
    "parse_grid",
    "size",
    "tune",
    "write_fragment",
]
