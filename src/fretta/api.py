"""The front door: `fretta.adapt(model, "g-fret", lr=1e-3)`, and methods by name."""

from __future__ import annotations

from .adapter import Adapter
from .methods import build_method

__all__ = ["adapt", "build_method"]

adapt = Adapter
