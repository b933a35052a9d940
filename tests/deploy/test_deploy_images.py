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

HOW = Decoding(8, exif=True, alpha="white")


def pixel(path: Path, how: Decoding = HOW) -> list[int]:
    pixels, note = read_image(str(path), how)
    assert pixels is not None, note
    assert pixels.shape == (8, 8, 3)
    return pixels[0, 0].tolist()


def why(path: Path) -> str:
    pixels, note = read_image(str(path), HOW)
    assert pixels is None
    return note


def png(path: Path, depth: int, color: int, row: bytes) -> None:
    """A PNG by hand: 1×1, which Pillow cannot write for every kind."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", 1, 1, depth, color, 0, 0, 0)
    data = zlib.compress(b"\0" + row)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


def test_gray_and_palette(tmp_path: Path) -> None:
    Image.new("L", (5, 9), 77).save(tmp_path / "gray.jpg", quality=100)
    assert pixel(tmp_path / "gray.jpg") == [77, 77, 77]
    Image.new("1", (5, 9), 1).save(tmp_path / "bit.png")
    assert pixel(tmp_path / "bit.png") == [255, 255, 255]
    palette = Image.new("P", (3, 3), 1)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    palette.save(tmp_path / "palette.png")
    assert pixel(tmp_path / "palette.png") == [10, 20, 30]


def test_cmyk(tmp_path: Path) -> None:
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=100)
    red, green, blue = pixel(tmp_path / "a.jpg")  # magenta and yellow ink: red
    assert red > 230
    assert max(green, blue) < 40


def test_alpha_is_shown_on_white(tmp_path: Path) -> None:
    Image.new("RGBA", (4, 4), (200, 0, 0, 0)).save(tmp_path / "clear.png")
    assert pixel(tmp_path / "clear.png") == [255, 255, 255]
    assert pixel(tmp_path / "clear.png", Decoding(8, alpha="drop")) == [200, 0, 0]
    Image.new("RGBA", (4, 4), (0, 0, 0, 51)).save(tmp_path / "fifth.png")  # 51/255 = 0.2 of black
    assert pixel(tmp_path / "fifth.png") == [204, 204, 204]
    Image.new("LA", (4, 4), (0, 0)).save(tmp_path / "gray.png")
    assert pixel(tmp_path / "gray.png") == [255, 255, 255]
    Image.new("RGB", (4, 4), (9, 9, 9)).save(tmp_path / "key.png", transparency=(9, 9, 9))
    assert pixel(tmp_path / "key.png") == [255, 255, 255]
    palette = Image.new("P", (3, 3), 0)
    palette.putpalette([10, 20, 30])
    palette.save(tmp_path / "palette.png", transparency=0)
    assert pixel(tmp_path / "palette.png") == [255, 255, 255]


def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path) -> None:
    png(tmp_path / "gray.png", 16, 0, struct.pack(">H", 0x80FF))
    assert pixel(tmp_path / "gray.png") == [0x80] * 3
    png(tmp_path / "rgb.png", 16, 2, struct.pack(">HHH", 0x10FF, 0x80FF, 0xFF00))
    assert pixel(tmp_path / "rgb.png") == [0x10, 0x80, 0xFF]
    png(tmp_path / "alpha.png", 16, 6, struct.pack(">HHHH", 0, 0, 0, 0))
    assert pixel(tmp_path / "alpha.png") == [255, 255, 255]
    Image.fromarray(np.full((4, 4), 0x4000, np.int32)).save(tmp_path / "wide.tif")
    assert pixel(tmp_path / "wide.tif") == [0x40] * 3


def test_a_scale_nobody_knows_is_refused(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 0.5, np.float32)).save(tmp_path / "float.tif")
    assert "which of them is white is unknown" in why(tmp_path / "float.tif")
    Image.fromarray(np.full((4, 4), 1 << 20, np.int32)).save(tmp_path / "wide.tif")
    assert "which of them is white is unknown" in why(tmp_path / "wide.tif")


@pytest.mark.parametrize(("name", "options"), [("a.gif", {}), ("a.webp", {"lossless": True})])
def test_animated_files_give_their_first_frame(
    tmp_path: Path, name: str, options: dict[str, bool]
) -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("white", "black", "red")]
    frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], **options)
    pixels, note = read_image(str(tmp_path / name), HOW)
    assert pixels is not None
    assert (pixels == 255).all()
    assert note == "first of 3 frames"


def test_exif_rotation(tmp_path: Path) -> None:
    image = Image.new("RGB", (8, 8), "black")
    image.paste("white", (0, 0, 8, 2))  # a white bar at the top of the file
    exif = Image.Exif()
    exif[0x0112] = 3  # shown upside down
    image.save(tmp_path / "a.png", exif=exif)
    pixels, _ = read_image(str(tmp_path / "a.png"), HOW)
    assert pixels is not None
    assert pixels[0].max() == 0
    assert pixels[7].min() == 255


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").touch()
    assert why(tmp_path / "empty.jpg") == "the file is empty"
    (tmp_path / "text.jpg").write_text("not an image")
    assert "cannot identify image file" in why(tmp_path / "text.jpg")
    Image.fromarray(np.random.RandomState(0).randint(0, 255, (64, 64, 3)).astype(np.uint8)).save(
        tmp_path / "half.jpg"
    )
    (tmp_path / "half.jpg").write_bytes((tmp_path / "half.jpg").read_bytes()[:900])
    assert "truncated" in why(tmp_path / "half.jpg")
    assert "No such file" in why(tmp_path / "absent.jpg")
    (tmp_path / "folder.jpg").mkdir()
    assert why(tmp_path / "folder.jpg") == "not a regular file"
    os.mkfifo(tmp_path / "pipe.jpg")  # opening it would wait for ever
    assert why(tmp_path / "pipe.jpg") == "not a regular file"
    assert "null byte" in why(tmp_path / "a\0b.jpg")


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    png(tmp_path / "bomb.png", 8, 2, b"\0\0\0")
    content = bytearray((tmp_path / "bomb.png").read_bytes())
    content[16:29] = head
    content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
    (tmp_path / "bomb.png").write_bytes(content)
    assert "decompression bomb" in why(tmp_path / "bomb.png")


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


def test_a_small_rest_joins_the_batch_before_it() -> None:
    def sizes(total: int, known: bool = True) -> list[int]:
        names = map(str, range(total))
        return [len(batch) for batch in group(names, 8, total if known else None)]

    assert sizes(16) == [8, 8]
    assert sizes(17) == [8, 9]
    assert sizes(18) == [8, 8, 2]
    assert sizes(3) == [3]
    assert sizes(17, known=False) == [8, 8, 1]  # nobody knows what still arrives
    assert sizes(0) == []


@pytest.mark.data
def test_real_photographs_are_all_read(shared: Path) -> None:
    """Photographs as they come: gray ones, EXIF, any size."""
    found = list_folder(shared / "data" / "imagenet-sample")
    names = found.names[::4]
    assert len(names) >= 200
    how = Decoding(64, fit="crop", exif=True, alpha="white")
    read = [len(p) for p, _ in read_readable(names, found.path, how, 32)]
    assert sum(read) == len(names)
