"""Bytes that somebody sent: the pixels `fretta adapt` would see, or a reason why not."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hostile import encoded, png
from PIL import Image

from fretta.data.images import decode
from fretta.errors import InputError
from fretta.models.preprocessing import Decoding
from fretta.serve.images import decode_bytes

LIMIT = 1_000_000


@pytest.mark.parametrize("fit", ["crop", "squash"])
@pytest.mark.parametrize(
    ("kind", "mode"),
    [("PNG", "RGBA"), ("JPEG", "RGB"), ("WEBP", "RGB"), ("BMP", "RGB"), ("TIFF", "L")],
)
def test_pixels_are_those_of_a_file(tmp_path: Path, kind: str, mode: str, fit: str) -> None:
    data, path = encoded(kind, mode=mode), tmp_path / "image"
    path.write_bytes(data)
    decoding = Decoding(size=16, fit=fit)
    assert np.array_equal(decode_bytes(data, decoding, LIMIT), decode(str(path), decoding))


def test_of_several_frames_the_first_is_taken() -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "green", "blue")]
    out = io.BytesIO()
    frames[0].save(out, "PNG", save_all=True, append_images=frames[1:])
    assert np.array_equal(decode_bytes(out.getvalue(), Decoding(size=8), LIMIT), frames[0])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"hello, I am no image at all", "no image that can be read"),
        (encoded("GIF"), "send one of JPEG, PNG"),
        (encoded()[:200], "damaged"),
        (encoded("JPEG")[:400], "damaged"),
        (png(2000, 2000), "more than the limit of 1,000,000"),
        (png(60_000, 60_000), "limit of 1,000,000"),
        (png(1, 900_000), "65,535 a side"),
        (png(3, 60_000), "too narrow"),
        (png(30, 30), "damaged"),
        (encoded()[:30] + b"\xff" * 200, "image 3"),
    ],
)
def test_bad_bytes_are_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        decode_bytes(data, Decoding(size=224, fit="crop"), LIMIT, "image 3")
    assert str(caught.value).startswith("image 3")
    assert len(str(caught.value)) < 400


def test_a_narrow_image_is_refused_whatever_the_limit() -> None:
    """256 × 512,000 once its short side is enlarged: `fretta adapt` does not read it either."""
    with pytest.raises(InputError, match=r"is too narrow: 30×60000 .* 50,000,000 pixels"):
        decode_bytes(png(30, 60_000), Decoding(size=224, fit="crop"), 10**9)


def test_a_bomb_is_refused_by_its_header() -> None:
    """40 MB of zeros, packed small: nothing of it is unpacked."""
    data = png(4000, 3500, bytes(3501 * 12_000))
    assert len(data) < 50_000
    tracemalloc.start()
    with pytest.raises(InputError, match="4000×3500"):
        decode_bytes(data, Decoding(size=32), LIMIT)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
