"""fretta: online test-time adaptation of PyTorch image classifiers."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import errors, estimate, export, methods, models
    from .adapter import Adapter
    from .api import adapt, list_methods
    from .guard import Guard
    from .health import Health
    from .method import GradientMethod, Method, Need
    from .parts.redundancy import redundancy

# MKL adds up in any order unless told otherwise before its first product: with several threads a
# stream could not be repeated bit for bit. Whoever has set this already keeps their choice.
os.environ.setdefault("MKL_CBWR", "AUTO")

__version__ = "0.1.0"

__all__ = [
    "Adapter",
    "GradientMethod",
    "Guard",
    "Health",
    "Method",
    "Need",
    "__version__",
    "adapt",
    "errors",
    "estimate",
    "export",
    "list_methods",
    "methods",
    "models",
    "redundancy",
]

# Names are loaded when they are first used: commands that only read results never load torch.
_HOME = {
    "Adapter": ".adapter",
    "GradientMethod": ".method",
    "Guard": ".guard",
    "Health": ".health",
    "Method": ".method",
    "Need": ".method",
    "adapt": ".api",
    "list_methods": ".api",
    "redundancy": ".parts.redundancy",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name], __name__), name)
    elif name in __all__:
        value = import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
