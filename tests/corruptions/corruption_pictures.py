"""Pictures to corrupt: smooth shapes, texture, and the flat ones that reveal rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

Images = np.ndarray[Any, np.dtype[np.uint8]]


def make_pictures(count: int, height: int, width: int, seed: int = 0) -> Images:
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / max(height, width)
    pictures = []
    for _ in range(count):
        a, b, phase = rng.uniform(2, 14, 3), rng.uniform(2, 14, 3), rng.uniform(0, 6, 3)
        waves = np.sin(a * x[..., None] + b * y[..., None] + phase)
        disk = (np.hypot(x - rng.random(), y - rng.random()) < 0.3)[..., None]
        levels = 128 + 80 * waves + 70 * disk * rng.uniform(-1, 1, 3)
        pictures.append(levels + rng.normal(0, 6, levels.shape))
    return np.clip(np.stack(pictures), 0, 255).astype(np.uint8)
