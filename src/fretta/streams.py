"""Streams of batches over data sets: `fretta.streams.make_stream(open_dataset("digits"), "mixed")`.

The data sets themselves are in `fretta.data`.
"""

from .data import Batch, Order, Stream, load_stream, make_stream

__all__ = ["Batch", "Order", "Stream", "load_stream", "make_stream"]
