"""Health of a running adapter, without labels, and the guard that acts on it."""

from .config import Guard
from .health import Health
from .keeper import Keeper, Subject
from .measure import FeatureTap, Numbers, measure
from .writers import JsonlWriter, TensorBoardWriter

__all__ = [
    "FeatureTap",
    "Guard",
    "Health",
    "JsonlWriter",
    "Keeper",
    "Numbers",
    "Subject",
    "TensorBoardWriter",
    "measure",
]
