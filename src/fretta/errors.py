"""Every exception fretta raises on purpose, and its warning categories.

    FrettaError
    ├── ConfigError        an unknown method or hyper-parameter, a value out of range  (ValueError)
    ├── ModelError         a model that cannot be adapted this way
    │   ├── HeadError      the classification head was not found, or is ambiguous
    │   └── NeedError      the method needs something the model or the call does not have
    ├── InputError         a batch the model cannot take; the adapter has not changed  (ValueError)
    ├── StateError         a state that does not belong to this adapter  (ValueError)
    ├── WeightsError       a weights file that is missing, unsafe or does not fit  (ValueError)
    ├── DataError          a data set that is missing, incomplete or unreadable  (ValueError)
    ├── SuiteError         a suite that names something unknown or missing  (ValueError)
    ├── StoreError         a store that cannot be used, or a damaged record
    │   └── CheckpointError  a checkpoint that is damaged, or of another model, method or version
    ├── BusyError          a service that cannot answer now; the same request may work later
    ├── UnknownStreamError a stream that a service does not have  (LookupError)
    └── MissingExtraError  an optional dependency is not installed  (ImportError)

Each message says what was seen, why it cannot work and what would.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

__all__ = [
    "BusyError",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "FrettaError",
    "FrettaWarning",
    "HeadError",
    "InputError",
    "MissingExtraError",
    "ModelError",
    "NeedError",
    "SmallBatchWarning",
    "StateError",
    "StoreError",
    "SuiteError",
    "UnknownStreamError",
    "WeightsError",
    "warn",
]


class FrettaError(Exception):
    """Base of everything fretta raises on purpose."""


class ConfigError(FrettaError, ValueError):
    """An unknown name or a value out of range."""


class ModelError(FrettaError):
    """A model that cannot be adapted this way."""


class HeadError(ModelError):
    """The classification head was not found, or more than one module could be it."""


class NeedError(ModelError):
    """The method needs something that the model or the call does not provide."""


class InputError(FrettaError, ValueError):
    """A batch the model cannot take. Raised before anything changed."""


class StateError(FrettaError, ValueError):
    """A saved state that does not belong to this adapter."""


class WeightsError(FrettaError, ValueError):
    """A weights file that is missing, unsafe, or does not fit the model."""


class DataError(FrettaError, ValueError):
    """A data set that is missing, incomplete or unreadable."""


class SuiteError(FrettaError, ValueError):
    """A suite that names something unknown or missing. Raised before any work."""


class StoreError(FrettaError):
    """A store that cannot be used, or a record that is damaged."""


class CheckpointError(StoreError):
    """A checkpoint that is damaged, or of another model, method or version."""


class BusyError(FrettaError):
    """A service cannot answer now; the same request may work later."""


class UnknownStreamError(FrettaError, LookupError):
    """A service has no stream of this name."""


class MissingExtraError(FrettaError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed; "
            f"it comes with fretta's extra {extra!r}; in a clone: pip install '.[{extra}]'"
        )
        self._given = package, extra, purpose

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), self._given  # raised in a worker, it arrives as what it is


class FrettaWarning(UserWarning):
    """Something works, but probably not as the user believes."""


class SmallBatchWarning(FrettaWarning):
    """Batches are too small for the statistics that a method takes from each of them."""


def warn(message: str, category: type[FrettaWarning] = FrettaWarning) -> None:
    """Warn of something that works, but probably not as the user believes, at the user's line."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and _package(frame.f_globals) in ("fretta", "torch"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _package(names: dict[str, Any]) -> str:
    return str(names.get("__name__")).partition(".")[0]
