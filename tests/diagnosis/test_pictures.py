"""Near-duplicates and the contact sheet."""

from __future__ import annotations

import base64
import io

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fretta.diagnosis.pictures import ContactSheet, Prints


def scenes(count: int, seed: int = 0) -> Tensor:
    """Different pictures: smooth color, as photographs are at a distance."""
    rough = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed)) * 255
    return torch.nn.functional.interpolate(rough, 64, mode="bilinear").to(torch.uint8)


def recompressed(image: Tensor) -> Tensor:
    file = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(file, "JPEG", quality=60)
    return torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1)


def test_copies_are_found_and_other_pictures_are_not() -> None:
    images = scenes(300)
    copies = torch.stack([recompressed(image) for image in images[:20]])
    brighter = (images[20:30].int() + 4).clamp(max=255).to(torch.uint8)
    prints = Prints()
    prints.add([f"{i:03d}.png" for i in range(300)], images)
    assert prints.duplicates() == (0, 0, [])
    prints.add([f"{i:03d}b.png" for i in range(20)], copies)
    prints.add([f"x{i}.png" for i in range(10)], brighter)
    found, beside, groups = prints.duplicates()
    assert found == 30
    assert beside == 20
    assert ["000.png", "000b.png"] in groups
    assert prints.gray == 0


def test_flat_and_gray_images() -> None:
    levels = torch.tensor([0, 100, 200, 200, 255], dtype=torch.uint8)
    prints = Prints()
    prints.add(list("abcde"), levels.view(5, 1, 1, 1).expand(5, 3, 16, 16))
    assert prints.duplicates() == (1, 1, [["c", "d"]])
    assert prints.gray == 5
    prints.add(["f"], torch.zeros(1, 1, 16, 16, dtype=torch.uint8))
    assert prints.duplicates()[0] == 2
    assert prints.gray == 6


def test_a_long_burst_is_one_group() -> None:
    prints = Prints()
    prints.add([f"{i:02d}" for i in range(40)], scenes(1).expand(40, -1, -1, -1))
    found, beside, groups = prints.duplicates()
    assert (found, beside, len(groups), len(groups[0])) == (39, 39, 1, 40)


def test_the_sheet_keeps_the_farthest_and_keeps_them_small() -> None:
    sheet = ContactSheet(shown=3)
    images = torch.zeros(4, 1, 300, 150, dtype=torch.uint8)
    sheet.add(list("abcd"), images, torch.tensor([0.1, 0.9, 0.3, 0.2]))
    sheet.add(list("efgh"), images, torch.tensor([0.9, 0.5, 0.0, 0.1]))
    kept = sheet.images()
    assert [m.name for m in kept] == ["b", "e", "f"]
    header, content = kept[0].uri().split(",")
    assert header == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(content))).size == (48, 96)
