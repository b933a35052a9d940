"""Files of every kind: read as a person would see them, or refused with the reason."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fretta.data.images import Decoding
from fretta.data.listing import list_folder
from fretta.data.read_ahead import group, read_image, read_readable

DECODING = Decoding(8, exif=True, alpha="white")


def pixel(path: Path, decoding: Decoding = DECODING) -> list[int]:
    pixels, note = read_image(str(path), decoding)
    assert pixels is not None, note
    assert pixels.shape == (8, 8, 3)
    return pixels[0, 0].tolist()


def png(path: Path, depth: int, color: int, row: bytes, side: int = 1) -> None:
    """A PNG by hand: kinds that Pillow cannot write, and a header that may lie."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", side, side, depth, color, 0, 0, 0)
    chunks = (b"IHDR", head), (b"IDAT", zlib.compress(b"\0" + row)), (b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*pair) for pair in chunks))


def palette(index: int, *colors: int) -> Image.Image:
    image = Image.new("P", (3, 3), index)
    image.putpalette(colors)
    return image


WHITE = [255] * 3


@pytest.mark.parametrize(
    ("image", "saved", "expected"),
    [
        (Image.new("L", (5, 9), 77), {}, [77] * 3),
        (Image.new("1", (5, 9), 1), {}, WHITE),
        (palette(1, 0, 0, 0, 10, 20, 30), {}, [10, 20, 30]),
        (Image.new("RGBA", (4, 4), (200, 0, 0, 0)), {}, WHITE),  # transparent: shown on white
        (Image.new("RGBA", (4, 4), (0, 0, 0, 51)), {}, [204] * 3),  # 51/255 = 0.2 of black
        (Image.new("LA", (4, 4), (0, 0)), {}, WHITE),
        (Image.new("RGB", (4, 4), (9, 9, 9)), {"transparency": (9, 9, 9)}, WHITE),
        (palette(0, 10, 20, 30), {"transparency": 0}, WHITE),
    ],
)
def test_colors(
    tmp_path: Path, image: Image.Image, saved: dict[str, object], expected: list[int]
) -> None:
    image.save(tmp_path / "a.png", **saved)  # type: ignore[arg-type]
    assert pixel(tmp_path / "a.png") == expected


def test_other_colors(tmp_path: Path) -> None:
    Image.new("RGBA", (4, 4), (200, 0, 0, 0)).save(tmp_path / "clear.png")
    assert pixel(tmp_path / "clear.png", Decoding(8, alpha="drop")) == [200, 0, 0]
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=100)
    red, *others = pixel(tmp_path / "a.jpg")  # magenta and yellow ink: red
    assert red > 230
    assert max(others) < 40
    # 16 bits are scaled, not clipped
    png(tmp_path / "gray.png", 16, 0, struct.pack(">H", 0x80FF))
    assert pixel(tmp_path / "gray.png") == [0x80] * 3
    png(tmp_path / "rgb.png", 16, 2, struct.pack(">HHH", 0x10FF, 0x80FF, 0xFF00))
    assert pixel(tmp_path / "rgb.png") == [0x10, 0x80, 0xFF]
    png(tmp_path / "alpha.png", 16, 6, struct.pack(">HHHH", 0, 0, 0, 0))
    assert pixel(tmp_path / "alpha.png") == WHITE
    Image.fromarray(np.full((4, 4), 0x4000, np.int32)).save(tmp_path / "wide.tif")
    assert pixel(tmp_path / "wide.tif") == [0x40] * 3


@pytest.mark.parametrize(("name", "options"), [("a.gif", {}), ("a.webp", {"lossless": True})])
def test_animated_files_give_their_first_frame(
    tmp_path: Path, name: str, options: dict[str, bool]
) -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("white", "black", "red")]
    frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], **options)
    pixels, note = read_image(str(tmp_path / name), DECODING)
    assert pixels is not None
    assert (pixels == 255).all()
    assert note == "first of 3 frames"


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("not an image")
    noise = np.random.RandomState(0).randint(0, 255, (64, 64, 3)).astype(np.uint8)
    Image.fromarray(noise).save(tmp_path / "half.jpg")
    (tmp_path / "half.jpg").write_bytes((tmp_path / "half.jpg").read_bytes()[:900])
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")  # opening it would wait for ever
    png(tmp_path / "bomb.png", 8, 2, b"\0\0\0", side=60_000)
    Image.fromarray(np.full((4, 4), 0.5, np.float32)).save(tmp_path / "float.tif")
    Image.fromarray(np.full((4, 4), 1 << 20, np.int32)).save(tmp_path / "wide.tif")
    for name, expected in {
        "empty.jpg": "the file is empty",
        "text.jpg": "cannot identify image file",
        "half.jpg": "truncated",
        "absent.jpg": "No such file",
        "folder.jpg": "not a regular file",
        "pipe.jpg": "not a regular file",
        "a\0b.jpg": "null byte",
        "bomb.png": "decompression bomb",
        "float.tif": "which of them is white is unknown",
        "wide.tif": "which of them is white is unknown",
    }.items():
        pixels, why = read_image(str(tmp_path / name), DECODING)
        assert pixels is None
        assert expected in why


def test_mixed_sizes_become_one_batch(tmp_path: Path) -> None:
    paths = []
    for number, size in enumerate([(3, 3), (8, 8), (40, 10), (1, 60)]):
        paths.append(tmp_path / f"{number}.png")
        Image.new("RGB", size, "white").save(paths[-1])
    paths.insert(1, tmp_path / "absent.png")
    ((positions, x),) = read_readable([*map(str, paths)], str, Decoding(8, fit="crop"), 8)
    assert positions == [0, 2, 3, 4]
    assert x.shape == (4, 3, 8, 8)
    assert bool((x == 255).all())


@pytest.mark.parametrize(
    ("total", "known", "expected"),
    [
        (17, True, [8, 9]),  # a small rest joins the batch before it
        (18, True, [8, 8, 2]),
        (3, True, [3]),
        (17, False, [8, 8, 1]),  # nobody knows what is still to come
        (0, True, []),
    ],
)
def test_sizes_of_batches(total: int, known: bool, expected: list[int]) -> None:
    names = map(str, range(total))
    assert [len(batch) for batch in group(names, 8, total if known else None)] == expected


@pytest.mark.data
def test_real_photographs_are_all_read(shared: Path) -> None:
    """Photographs as they come: gray ones, EXIF, any size."""
    found = list_folder(shared / "data" / "imagenet-sample")
    names = found.names[::4]
    assert len(names) >= 200
    decoding = Decoding(64, fit="crop", exif=True, alpha="white")
    read = [len(p) for p, _ in read_readable(names, found.path, decoding, 32)]
    assert sum(read) == len(names)
