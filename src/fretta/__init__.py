"""fretta: online test-time adaptation of PyTorch image classifiers."""

from __future__ import annotations

from . import errors, methods, models
from .adapter import Adapter
from .api import adapt, list_methods
from .method import GradientMethod, Method, Need
from .parts.redundancy import redundancy

__version__ = "0.1.0"

__all__ = [
    "Adapter",
    "GradientMethod",
    "Method",
    "Need",
    "__version__",
    "adapt",
    "errors",
    "list_methods",
    "methods",
    "models",
    "redundancy",
]
