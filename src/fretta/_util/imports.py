"""Objects by name: `module:object`."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from ..errors import ConfigError


def import_object(spec: str, what: str) -> Any:
    """The object a `module:name` stands for. The current folder is searched too."""
    module, _, name = spec.partition(":")
    if not module or not name:
        raise ConfigError(f"{what} {spec!r} is not of the form module:name, such as my.nets:build")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:  # as `python -m` does
        sys.path.append(here)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise ConfigError(f"{what} {spec!r}: {module} wants more: {error}") from error
        raise ConfigError(
            f"{what} {spec!r}: {error}; looked in the current folder ({here}), in PYTHONPATH and"
            f" among the installed packages. Run fretta where {module.split('.')[0]}.py is, or set"
            " PYTHONPATH to that folder"
        ) from error
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        public = [n for n in vars(found) if not n.startswith("_")]
        raise ConfigError(
            f"{what} {spec!r}: {module!r} has no {name!r}; it has {', '.join(sorted(public)[:20])}"
        ) from error
    return found
