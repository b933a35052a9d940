"""`fretta serve`: a service that adapts, many streams at once. It needs fretta[serve].

settings.py, host.py and store.py know neither Ray nor HTTP.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from .settings import Settings

__all__ = ["Settings"]


def __getattr__(name: str) -> Any:
    """Modules are loaded when they are first used: most need Ray or torch."""
    if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f".{name}", __name__)
