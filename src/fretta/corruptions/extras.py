"""Pillow and scipy, imported when a corruption needs them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, MissingExtraError
from .base import Pixels

__all__ = ["pillow_image", "read_rgb", "scipy_module"]


def pillow_image(purpose: str) -> Any:
    """Pillow's Image, or the error that says how to get it."""
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        raise MissingExtraError("pillow", "data", purpose) from error


def scipy_module(name: str, purpose: str) -> Any:
    """A part of scipy, or the error that says how to get it."""
    try:
        return import_module(f"scipy.{name}")
    except ImportError as error:
        raise MissingExtraError("scipy", "data", purpose) from error


def read_rgb(path: Path) -> Pixels:
    """An image file as (H, W, 3) uint8; a damaged one is a DataError that names it."""
    opener = pillow_image("reading an image file")
    try:
        with opener.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read as an image ({error}); replace or remove it"
        ) from error
