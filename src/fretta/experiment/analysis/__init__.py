"""Measurements behind the figures: redundancy under shift, what happens step by step, t-SNE.

Each returns plain data that the store keeps as an analysis; `fretta report` draws it.
"""

from __future__ import annotations

from .mechanism import mechanism
from .redundancy import redundancy_under_shift
from .setting import Setting
from .tsne import tsne

__all__ = ["Setting", "mechanism", "redundancy_under_shift", "tsne"]
