"""Image files to uint8 RGB arrays of one size."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..corruptions.base import pillow_image
from ..errors import DataError
from ..models.preprocessing import Decoding

if TYPE_CHECKING:
    from PIL import Image

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".webp", ".tif", ".tiff")
MOST_PIXELS = 50_000_000  # that "crop" may make of an image before it cuts the center
ORIENTATION = 0x0112  # EXIF: how to turn the pixels

# Everything Pillow's decoders are known to raise on damaged files.
BROKEN = (
    *(OSError, ValueError, SyntaxError, EOFError, TypeError, LookupError, OverflowError),
    *(struct.error, zlib.error),
)


def _pillow() -> Any:
    return pillow_image("decoding image files")


def decode(path: str, decoding: Decoding, notes: list[str] | None = None) -> NDArray[np.uint8]:
    """One image as (H, W, 3) uint8; DataError with the path where that is impossible.

    `notes` gets what a user may want to know about the file: that only its first frame was taken.
    """
    with opened(path) as image:
        frames = getattr(image, "n_frames", 1) if notes is not None else 1
        pixels = pixels_of(image, decoding)
    if notes is not None and frames > 1:
        notes.append(f"first of {frames} frames")
    return pixels


@contextmanager
def opened(path: str) -> Iterator[Image.Image]:
    """An image file to read from; what is broken in it is a DataError with the path."""
    pillow = _pillow()
    try:
        with pillow.open(path) as image:
            yield image
    except (*BROKEN, pillow.DecompressionBombError) as error:
        raise DataError(f"unreadable image {path}: {error or type(error).__name__}") from error


def pixels_of(image: Image.Image, decoding: Decoding) -> NDArray[np.uint8]:
    """An opened image as (H, W, 3) uint8; a damaged one raises one of BROKEN."""
    image.load()
    return np.array(_fitted(_rgb(image, decoding), decoding), dtype=np.uint8)


def orientation_of(image: Image.Image) -> int | None:
    """How the EXIF tag of a loaded image says to turn it; None where it need not be turned."""
    with suppress(*BROKEN):  # a damaged tag turns nothing
        number = image.getexif().get(ORIENTATION)
        return number if number in range(2, 9) else None
    return None


def size_on_disk(path: str) -> tuple[int, int] | None:
    """Width and height by the header of a file; None where there is no telling."""
    pillow = _pillow()
    try:
        with pillow.open(path) as image:
            return image.size  # type: ignore[no-any-return]
    except (*BROKEN, pillow.DecompressionBombError):
        return None


def _rgb(image: Image.Image, decoding: Decoding) -> Image.Image:
    if decoding.exif:
        from PIL import ImageOps

        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I") or image.mode == "F":
        image = _deep(image)
    see_through = image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info
    if see_through and decoding.alpha == "white":
        image = image.convert("RGBA")
        ground = _pillow().new("RGBA", image.size, "white")
        return _pillow().alpha_composite(ground, image).convert("RGB")  # type: ignore[no-any-return]
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # the direct way warns; the colors are the same
    return image if image.mode == "RGB" else image.convert("RGB")


def _deep(image: Image.Image) -> Image.Image:
    """Gray of 16 bits: keep the high byte; convert() would clip at 255."""
    values = np.asarray(image)
    if image.mode == "F" or values.min() < 0 or values.max() > 0xFFFF:
        raise ValueError(
            f"its values are {values.dtype} from {values.min()} to {values.max()}, and which of"
            " them is white is unknown; save it with 8 or 16 bits"
        )
    high = (values.astype(np.uint32) >> 8).astype(np.uint8)
    if values.max() <= 0xFF:  # 8-bit values in a wide file
        high = values.astype(np.uint8)
    return _pillow().fromarray(high)  # type: ignore[no-any-return]


def enlarged(size: tuple[int, int], decoding: Decoding) -> int:
    """Pixels of an image whose short side was scaled for "crop"; 0 where it is not."""
    short = decoding.short_side if decoding.fit == "crop" else None
    return short * short * max(size) // min(size) if short else 0


def _fitted(image: Image.Image, decoding: Decoding) -> Image.Image:
    size = decoding.size
    if size is None or image.size == (size, size):
        return image
    pillow = _pillow()
    kind = pillow.Resampling[decoding.interpolation.upper()]
    if decoding.fit == "squash":
        return image.resize((size, size), kind)
    width, height = image.size
    short = decoding.short_side or size
    if enlarged(image.size, decoding) > MOST_PIXELS:
        raise ValueError(
            f"it is too narrow: {width}×{height} would have more than {MOST_PIXELS:,} pixels with a"
            f" short side of {short}; cut out the part that matters"
        )
    long = int(short * max(width, height) / min(width, height))
    width, height = (short, long) if width <= height else (long, short)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return image.resize((width, height), kind).crop((left, top, left + size, top + size))


def resize_arrays(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """(n, H, W, 3) uint8 to (n, size, size, 3): bilinear, antialiased when shrinking."""
    if images.shape[1:3] == (size, size):
        return images
    import torch
    from torch.nn.functional import interpolate

    x = torch.from_numpy(images.transpose(0, 3, 1, 2).astype(np.float32))
    x = interpolate(x, (size, size), mode="bilinear", align_corners=False, antialias=True)
    x = x.round_().clamp_(0, 255).to(torch.uint8)
    return np.ascontiguousarray(x.numpy().transpose(0, 2, 3, 1))
