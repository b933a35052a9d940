"""The common corruptions, on whole batches, seeded per image.

    from fretta.corruptions import corrupt
    shifted = corrupt(images_uint8, "fog", severity=5, seed=0)

`fretta.data.corrupt_folder` writes a corrupted data set to disk.
"""

from __future__ import annotations

from .constants import ALL, CORRUPTIONS, EXTRA, constants_for
from .engine import corrupt

__all__ = [
    "ALL",
    "CORRUPTIONS",
    "EXTRA",
    "constants_for",
    "corrupt",
]
