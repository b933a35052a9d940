"""Decoding: sizes as torchvision makes them, odd formats, damaged files; preprocessing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fretta.compat import import_torchvision
from fretta.data import Preprocessing
from fretta.data.images import Decoding, decode, resize_arrays
from fretta.errors import ConfigError, DataError, InputError, MissingExtraError


def noise(width: int, height: int) -> Image.Image:
    pixels = np.random.RandomState(width).randint(0, 256, (height, width, 3))
    return Image.fromarray(pixels.astype(np.uint8))


@pytest.mark.parametrize(("width", "height"), [(300, 200), (97, 181), (224, 224), (40, 224)])
def test_same_pixels_as_torchvision(tmp_path: Path, width: int, height: int) -> None:
    import_torchvision()
    from torchvision import transforms

    image, path = noise(width, height), str(tmp_path / "a.png")
    image.save(path)
    squash = transforms.Resize((160, 160))(image)
    assert (decode(path, Decoding(160)) == np.asarray(squash)).all()
    crop = transforms.CenterCrop(224)(transforms.Resize(256)(image))
    if (width, height) == (224, 224):  # of the right size: left alone
        crop = image
        assert (decode(path, Decoding(224)) == np.asarray(image)).all()
    assert (decode(path, Decoding(224, fit="crop")) == np.asarray(crop)).all()


def test_odd_formats(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    Image.new("RGB", (8, 4), (200, 0, 0)).save(tmp_path / "a.jpg", exif=exif)
    assert decode(str(tmp_path / "a.jpg"), Decoding(None)).shape == (4, 8, 3)
    assert decode(str(tmp_path / "a.jpg"), Decoding(None, exif=True)).shape == (8, 4, 3)
    palette = Image.new("P", (2, 2), 0)
    palette.putpalette([10, 20, 30] + [0] * 765)
    palette.info["transparency"] = b"\x00\x80"
    for image, expected in (
        (Image.new("L", (2, 2), 77), [77, 77, 77]),
        (palette, [10, 20, 30]),
        (Image.new("RGBA", (2, 2), (1, 2, 3, 0)), [1, 2, 3]),
        (Image.fromarray(np.full((2, 2), 0x7F12, np.uint16)), [0x7F] * 3),
        (Image.fromarray(np.full((2, 2), 200, np.uint16)), [200] * 3),  # 8 bits in a wide file
    ):
        image.save(tmp_path / "b.png")
        assert decode(str(tmp_path / "b.png"), Decoding(None))[0, 0].tolist() == expected


def test_a_narrow_image_is_not_enlarged_without_limit(tmp_path: Path) -> None:
    path = str(tmp_path / "a.png")
    Image.new("RGB", (1, 1000)).save(path)  # 256 × 256,000 with a short side of 256
    with pytest.raises(DataError, match=r"a\.png: it is too narrow: 1×1000 .* side of 256"):
        decode(path, Decoding(224, fit="crop"))
    assert decode(path, Decoding(224)).shape == (224, 224, 3)
    assert decode(path, Decoding(8, fit="crop")).shape == (8, 8, 3)


def test_unreadable_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for format_ in ("jpeg", "png", "bmp", "webp"):
        noise(64, 64).save(tmp_path / f"whole.{format_}")
        content = (tmp_path / f"whole.{format_}").read_bytes()
        for part in (0.0, 0.1, 0.6):
            (tmp_path / f"{part}.{format_}").write_bytes(content[: int(len(content) * part)])
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(range(256)) * 4)
    (tmp_path / "b.jpg").mkdir()
    for path in (*tmp_path.glob("[0ab]*"), tmp_path / "missing.jpg"):
        with pytest.raises(DataError, match=f"unreadable image .*{path.name}"):
            decode(str(path), Decoding(32))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DataError, match="decompression bomb"):
        decode(str(tmp_path / "whole.png"), Decoding(32))
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match=r"'pillow'.*extra 'data'"):
        decode(str(tmp_path / "whole.png"), Decoding(8))


def test_resize_arrays() -> None:
    images = np.zeros((2, 2, 2, 3), np.uint8)
    images[0, :, 1] = 100  # dark left, bright right
    large = resize_arrays(images, 4)
    # Bilinear, half-pixel centers: weights 0, 1/4, 3/4, 1 of the bright column.
    assert large[0, 0, :, 0].tolist() == [0, 25, 75, 100]
    assert large[1].max() == 0
    assert resize_arrays(images, 2) is images
    assert resize_arrays(images, 1)[0, 0, 0].tolist() == [50, 50, 50]


def test_formula_and_json() -> None:
    x = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    out = Preprocessing((0.5, 0.2, 0.0), (0.5, 0.1, 2.0)).apply(x)
    # (0 − .5)/.5, (.2 − .2)/.1, (1 − 0)/2
    torch.testing.assert_close(out.flatten(), torch.tensor([-1.0, 0.0, 0.5]))
    assert x.flatten().tolist() == [0, 51, 255]
    ours = Preprocessing((0.5,) * 3, (0.25,) * 3, 160, "crop", "bicubic")
    assert Preprocessing.from_json(json.loads(json.dumps(ours.to_json()))) == ours
    assert ours.options() == {"size": 160, "fit": "crop", "interpolation": "bicubic"}
    half = Preprocessing((0.5,) * 3, (0.5,) * 3).apply(x, "cpu", torch.float64)
    assert half.dtype == torch.float64
    with pytest.raises(ConfigError, match=r"keys \['mean', 'sd'\]"):
        Preprocessing.from_json({"mean": [0], "sd": [1]})


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((1, 3, 32, 32), torch.float32, "already normalized"),
        ((3, 32, 32), torch.uint8, "uint8"),
        ((1, 1, 32, 32), torch.uint8, "1 channels"),
        ((1, 3, 32, 40), torch.uint8, r"40×32, but the weights expect 32×32.*size=32"),
    ],
)
def test_input_is_checked(shape: tuple[int, ...], dtype: torch.dtype, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Preprocessing(size=32).apply(torch.zeros(shape, dtype=dtype))


@pytest.mark.parametrize(
    "values",
    [
        *({"mean": mean} for mean in ((0.5,), 0.5, (float("nan"), 0, 0))),
        *({"std": std} for std in ((0.5, 0.5, 0), ("a", 1, 1))),
        *({"size": size} for size in (0, 2.5)),
        {"fit": "stretch"},
        {"interpolation": "x"},
        {"crop_ratio": 0},
    ],
)
def test_bad_values(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))):
        Preprocessing(**values)  # type: ignore[arg-type]
