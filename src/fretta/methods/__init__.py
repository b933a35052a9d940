"""The catalogue: one import line per method, from which everything else derives."""

from __future__ import annotations

from ..method import Method
from .bn import BN
from .eata import EATA, ETA
from .gfret import GFRET
from .sar import SAR
from .sfret import SFRET
from .source import Source
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
    "EATA",
    "ETA",
    "GFRET",
    "SAR",
    "SFRET",
    "TEA",
    "TIPI",
    "TSD",
    "Source",
    "Tent",
]
