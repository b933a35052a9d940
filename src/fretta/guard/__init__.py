"""The guard: notices that adaptation does harm, without labels, and undoes it."""

from .config import Guard
from .keeper import Keeper, Subject

__all__ = ["Guard", "Keeper", "Subject"]
