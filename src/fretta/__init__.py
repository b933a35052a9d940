"""fretta: online test-time adaptation of PyTorch image classifiers."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import (
        compat,
        corruptions,
        data,
        errors,
        estimate,
        export,
        guard,
        methods,
        models,
        streams,
    )
    from .adapter import Adapter
    from .api import adapt
    from .diagnosis import diagnose
    from .experiment.evaluation import evaluate
    from .experiment.results import load_results
    from .guard import Guard, Health
    from .method import GradientMethod, Method, Need
    from .methods import list_methods
    from .parts.compute import Compute
    from .parts.redundancy import redundancy

# Unless this is set before its first product, MKL adds up in any order, and with several threads a
# stream could not be repeated bit for bit. Whoever has set this already keeps their choice.
os.environ.setdefault("MKL_CBWR", "AUTO")

__version__ = "0.1.0"

__all__ = [
    "Adapter",
    "Compute",
    "GradientMethod",
    "Guard",
    "Health",
    "Method",
    "Need",
    "__version__",
    "adapt",
    "compat",
    "corruptions",
    "data",
    "diagnose",
    "errors",
    "estimate",
    "evaluate",
    "export",
    "guard",
    "list_methods",
    "load_results",
    "methods",
    "models",
    "redundancy",
    "streams",
]

# Names and submodules are loaded when they are first used: commands that only read results never
# load torch.
_HOME = {
    "Adapter": ".adapter",
    "Compute": ".parts.compute",
    "GradientMethod": ".method",
    "Guard": ".guard",
    "Health": ".guard",
    "Method": ".method",
    "Need": ".method",
    "adapt": ".api",
    "diagnose": ".diagnosis",
    "evaluate": ".experiment.evaluation",
    "list_methods": ".methods",
    "load_results": ".experiment.results",
    "redundancy": ".parts.redundancy",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name], __name__), name)
    elif not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        value = import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
