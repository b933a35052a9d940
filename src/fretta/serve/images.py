"""Bytes that somebody sent to pixels: what they claim to be is checked before memory is taken."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from ..corruptions.base import pillow_image
from ..data.images import BROKEN, MOST_PIXELS, enlarged, pixels_of
from ..errors import InputError
from ..models.preprocessing import Decoding

# What `fretta adapt` reads. Pillow knows many more, and every reader can be attacked.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "PPM", "TIFF")
LONGEST = 65_535  # of a side, as in JPEG: Pillow takes seconds for millions of short rows


def decode_bytes(
    data: bytes, decoding: Decoding, max_pixels: int, what: str = "the image"
) -> NDArray[np.uint8]:
    """(H, W, 3) uint8, the same pixels as `fretta adapt` takes from a file.

    Of several frames the first is taken. InputError says what is wrong with `what`.
    """
    pillow = pillow_image("decoding images")
    if not data:
        raise InputError(f"{what} is empty: 0 bytes; send the content of an image file")
    bombs = (pillow.DecompressionBombError, pillow.DecompressionBombWarning)
    try:
        with pillow.open(io.BytesIO(data), formats=FORMATS) as image:
            _check_size(image.size, decoding, max_pixels, what)
            return pixels_of(image, decoding)
    except InputError:
        raise
    except pillow.UnidentifiedImageError:
        raise InputError(
            f"{what} is no image that can be read: {len(data):,} bytes that begin with"
            f" {data[:8]!r}; send one of {', '.join(FORMATS)}"
        ) from None
    except bombs:  # far above any limit
        raise InputError(f"{what} has more pixels than the limit of {max_pixels:,}") from None
    except (*BROKEN, MemoryError, RecursionError) as error:
        raise InputError(f"{what} is damaged: {error or type(error).__name__}") from None


def _check_size(size: tuple[int, int], decoding: Decoding, max_pixels: int, what: str) -> None:
    """By the header alone, before anything is unpacked."""
    width, height = size
    if width < 1 or height < 1:
        raise InputError(f"{what} has no pixels: {width}×{height}")
    if width * height > max_pixels or max(width, height) > LONGEST:
        raise InputError(
            f"{what} has {width}×{height} pixels, more than the limit of {max_pixels:,}"
            f" (max_pixels) or of {LONGEST:,} a side; send it smaller"
        )
    most = min(max_pixels, MOST_PIXELS)
    if enlarged(size, decoding) > most:
        raise InputError(
            f"{what} is too narrow: {width}×{height} would have more than {most:,} pixels with a"
            f" short side of {decoding.short_side}; send the part that matters"
        )
