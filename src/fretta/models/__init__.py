"""Models by name, weights from files that cannot execute code, and the cards that explain them."""

from __future__ import annotations

from .cards import Card, card_of, check_card, read_card, write_card
from .load import list_sources, load, load_source
from .weights import load_weights, read_weights

__all__ = [
    "Card",
    "card_of",
    "check_card",
    "list_sources",
    "load",
    "load_source",
    "load_weights",
    "read_card",
    "read_weights",
    "write_card",
]
