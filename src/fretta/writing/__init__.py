"""Corrupted versions of data sets, written to disk in the layouts people have.

from fretta.writing import corrupt_folder
corrupt_folder("cifar-10-batches-py", "CIFAR-10-C", "all", [1, 2, 3, 4, 5], jobs=2)
"""

from __future__ import annotations

from .folder import corrupt_folder
from .work import Summary

__all__ = ["Summary", "corrupt_folder"]
