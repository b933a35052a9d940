"""Models by name, and weights from files that cannot execute code."""

from __future__ import annotations

from .load import load
from .weights import load_weights, read_weights

__all__ = ["load", "load_weights", "read_weights"]
