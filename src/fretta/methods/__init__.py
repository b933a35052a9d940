"""The catalog: one import line per method, from which everything else derives.

Methods from outside are found by name too: `module:Class`, or the name of an entry point in the
group `fretta.methods`.
"""

from __future__ import annotations

import difflib
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .._util import import_object
from ..errors import ConfigError
from ..method import Method
from ..parts.compute import Compute
from .auto import Auto
from .bn import BN
from .cmf import CMF
from .cotta import CoTTA
from .delta import DELTA
from .deyo import DeYO
from .eata import EATA, ETA
from .foa_shift import FOAShift
from .gfret import GFRET
from .lame import LAME
from .memo import MEMO
from .note import NOTE
from .rdumb import RDumb
from .roid import ROID
from .rotta import RoTTA
from .sar import SAR
from .sfret import SFRET
from .shot_im import SHOTIM
from .source import Source
from .stein import Stein
from .t3a import T3A
from .tea import TEA
from .tent import Tent
from .tipi import TIPI
from .tsd import TSD

REGISTRY: dict[str, type[Method]] = {
    cls.key: cls
    for cls in list(globals().values())
    if isinstance(cls, type) and issubclass(cls, Method) and cls.key
}

__all__ = [
    "BN",
    "CMF",
    "DELTA",
    "EATA",
    "ETA",
    "GFRET",
    "LAME",
    "MEMO",
    "NOTE",
    "ROID",
    "SAR",
    "SFRET",
    "SHOTIM",
    "T3A",
    "TEA",
    "TIPI",
    "TSD",
    "Auto",
    "CoTTA",
    "DeYO",
    "FOAShift",
    "RDumb",
    "RoTTA",
    "Source",
    "Stein",
    "Tent",
    "build_method",
    "find_method",
    "list_methods",
]


def list_methods() -> list[str]:
    """The names `adapt` knows: fretta's own and those of installed packages."""
    return sorted({*REGISTRY, *_installed()})


def find_method(name: str) -> type[Method]:
    """The class behind a name: a key, an entry point, or `module:Class`."""
    if name in REGISTRY:
        return REGISTRY[name]
    if name in _installed():
        found = _installed()[name].load()
    elif ":" in name:
        found = import_object(name, "method")
    else:
        close = difflib.get_close_matches(name.lower(), list_methods(), 1, 0.5)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ConfigError(
            f"unknown method {name!r}; {hint}choose from {', '.join(list_methods())}, or name a"
            " class of your own as module:Class"
        )
    if not (isinstance(found, type) and issubclass(found, Method) and found.key):
        raise ConfigError(
            f"method {name!r} is no class that derives from fretta.Method and has a `key`; see"
            " docs/extend.md"
        )
    return found


def build_method(method: str | Method, hyperparameters: dict[str, Any]) -> Method:
    """A method from its name and hyper-parameters; an instance takes the latter as changes."""
    if isinstance(method, Method):
        cls, values = type(method), {n: getattr(method, n) for n in method.field_names()}
    elif isinstance(method, str):
        cls, values = find_method(method), {}
    else:
        raise ConfigError(
            f"method is a {type(method).__name__}; give a name ({', '.join(list_methods())}) or a"
            " Method instance"
        )
    unknown = sorted(set(hyperparameters) - set(cls.field_names()))
    if unknown:
        computing = [name for name in unknown if name in Compute.__dataclass_fields__]
        hint = f"; give compute=fretta.Compute({computing[0]}=...)" if computing else ""
        raise ConfigError(
            f"{cls.key} has no hyper-parameter {', '.join(map(repr, unknown))}; it has "
            f"{', '.join(cls.field_names())}{hint}"
        )
    return cls(**{**values, **hyperparameters})


@cache
def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group="fretta.methods")}
