"""How fast is a step? Timed against the floor, and counted."""

from __future__ import annotations

from .counts import Counts, count, peak_bytes
from .floor import bare_forward, floor_step
from .steps import Timing, bench

__all__ = ["Counts", "Timing", "bare_forward", "bench", "count", "floor_step", "peak_bytes"]
