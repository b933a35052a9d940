"""Ways from uint8 to [0, 1] and back, for the plain corruptions."""

from __future__ import annotations

from typing import Any

import numpy as np

from fretta.corruptions.base import GUARD

Array = np.ndarray[Any, np.dtype[Any]]
Draws = dict[str, Array] | None


def truncate(x: Array) -> Array:
    return np.clip(x * 255.0 + GUARD, 0, 255).astype(np.uint8)


def scaled(image: Array) -> Array:
    return image / 255.0
