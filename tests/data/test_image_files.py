"""Decoding: sizes as torchvision makes them, odd formats, damaged files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fretta.compat import import_torchvision
from fretta.data.images import Decoding, decode, resize_arrays
from fretta.errors import ConfigError, DataError, MissingExtraError


def noise(width: int, height: int) -> Image.Image:
    pixels = np.random.RandomState(width).randint(0, 256, (height, width, 3))
    return Image.fromarray(pixels.astype(np.uint8))


@pytest.mark.parametrize(("width", "height"), [(300, 200), (97, 181), (224, 224), (40, 224)])
def test_same_pixels_as_torchvision(tmp_path: Path, width: int, height: int) -> None:
    import_torchvision()
    from torchvision import transforms

    image = noise(width, height)
    image.save(tmp_path / "a.png")
    squash = transforms.Resize((160, 160))(image)
    assert (decode(str(tmp_path / "a.png"), Decoding(160)) == np.asarray(squash)).all()
    if (width, height) != (224, 224):
        crop = transforms.CenterCrop(224)(transforms.Resize(256)(image))
        ours = decode(str(tmp_path / "a.png"), Decoding(224, fit="crop"))
        assert (ours == np.asarray(crop)).all()


@pytest.mark.parametrize("fit", ["squash", "crop"])
def test_an_image_of_the_right_size_is_left_alone(tmp_path: Path, fit: str) -> None:
    noise(224, 224).save(tmp_path / "a.png")
    ours = decode(str(tmp_path / "a.png"), Decoding(224, fit=fit))
    assert (ours == np.asarray(noise(224, 224))).all()


def test_exif_orientation_is_an_option(tmp_path: Path) -> None:
    image = Image.new("RGB", (8, 4), (200, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    image.save(tmp_path / "a.jpg", exif=exif)
    assert decode(str(tmp_path / "a.jpg"), Decoding(None)).shape == (4, 8, 3)
    assert decode(str(tmp_path / "a.jpg"), Decoding(None, exif=True)).shape == (8, 4, 3)


def test_gray_palette_alpha_and_16_bit_become_rgb(tmp_path: Path) -> None:
    how = Decoding(None)
    Image.new("L", (2, 2), 77).save(tmp_path / "gray.png")
    assert decode(str(tmp_path / "gray.png"), how)[0, 0].tolist() == [77, 77, 77]
    palette = Image.new("P", (2, 2), 0)
    palette.putpalette([10, 20, 30] + [0] * 765)
    palette.save(tmp_path / "palette.png", transparency=b"\x00\x80")
    assert decode(str(tmp_path / "palette.png"), how)[0, 0].tolist() == [10, 20, 30]
    Image.new("RGBA", (2, 2), (1, 2, 3, 0)).save(tmp_path / "alpha.png")
    assert decode(str(tmp_path / "alpha.png"), how)[0, 0].tolist() == [1, 2, 3]
    Image.fromarray(np.full((2, 2), 0x7F12, np.uint16)).save(tmp_path / "deep.png")
    assert decode(str(tmp_path / "deep.png"), how)[0, 0].tolist() == [0x7F] * 3


@pytest.mark.parametrize("format_", ["jpeg", "png", "bmp", "webp"])
@pytest.mark.parametrize("part", [0.0, 0.1, 0.6])
def test_truncated_file_is_named(tmp_path: Path, format_: str, part: float) -> None:
    path = tmp_path / f"a.{format_}"
    noise(64, 64).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(DataError, match=f"unreadable image .*a.{format_}"):
        decode(str(path), Decoding(32))


def test_garbage_directory_and_missing_file(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(range(256)) * 4)
    (tmp_path / "b.jpg").mkdir()
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        with pytest.raises(DataError, match=name):
            decode(str(tmp_path / name), Decoding(32))


def test_decompression_bomb_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise(64, 64).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DataError, match="decompression bomb"):
        decode(str(tmp_path / "a.png"), Decoding(32))


@pytest.mark.parametrize(
    "options",
    [{"size": 0}, {"size": 2.5}, {"fit": "stretch"}, {"interpolation": "x"}, {"crop_ratio": 0}],
)
def test_bad_options(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        Decoding(**options)  # type: ignore[arg-type]


def test_resize_arrays() -> None:
    images = np.zeros((2, 2, 2, 3), np.uint8)
    images[0, :, 1] = 100  # dark left, bright right
    large = resize_arrays(images, 4)
    # Bilinear, half-pixel centers: weights 0, 1/4, 3/4, 1 of the bright column.
    assert large[0, 0, :, 0].tolist() == [0, 25, 75, 100]
    assert large[1].max() == 0
    assert resize_arrays(images, 2) is images
    assert resize_arrays(images, 1)[0, 0, 0].tolist() == [50, 50, 50]


def test_pillow_is_asked_for_only_when_an_image_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise(8, 8).save(tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"'pillow'.*fretta\[data\]"):
        decode(str(tmp_path / "a.png"), Decoding(8))
    check = (
        "import sys, fretta.data;"
        "print([m for m in ('PIL', 'sklearn', 'scipy', 'torchvision') if m in sys.modules])"
    )
    seen = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[]"
