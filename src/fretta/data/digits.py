"""`digits`: scikit-learn's 1,797 handwritten digits at 32×32 RGB. Needs no file and no network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtraError
from ..models.preprocessing import check_size
from .domain import Dataset, Domain, check_choice
from .shift import Strength

SIDE = 32
SPLIT_SEED = 2024
FRACTIONS = {"train": 0.6, "val": 0.1}  # of every class; the rest is `test`
SPLITS = ("train", "val", "test")

# The severity at which each corruption is applied to the digits: a number, or a number and the
# set of constants it refers to. At 32 pixels most corruptions do nothing to a digit, which is bold
# and was enlarged from 8×8: there the 224-pixel constants are used, in pixels of the small image.
SEVERITY: Mapping[str, Strength] = {
    "gaussian_noise": (5, "imagenet"),
    "shot_noise": (5, "imagenet"),
    "impulse_noise": (5, "imagenet"),
    "defocus_blur": (3, "imagenet"),
    "glass_blur": (3, "imagenet"),
    "motion_blur": (3, "imagenet"),
    "zoom_blur": (5, "imagenet"),
    "snow": (5, "imagenet"),
    "frost": 5,
    "fog": 3,  # at 5 every method loses half of the digits
    "brightness": 5,
    "contrast": 5,
    "elastic_transform": (5, "imagenet"),
    "pixelate": (5, "imagenet"),
    "jpeg_compression": (5, "imagenet"),
}


@lru_cache(maxsize=1)
def load() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All images (1797, 32, 32, 3) uint8, white on black, and labels.

    The 8×8 originals have 17 gray values; v·255/16 and the bilinear weights of a fourfold
    enlargement (multiples of 1/8) are exact in float32: the pixels are the same on any machine.
    """
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise MissingExtraError("scikit-learn", "data", "the digits data set") from error
    import torch
    from torch.nn.functional import interpolate

    raw = load_digits()
    small = torch.from_numpy(raw.images.astype(np.float32) * 255 / 16)[:, None]
    large = interpolate(small, (SIDE, SIDE), mode="bilinear", align_corners=False)
    gray = large.round_().to(torch.uint8).numpy()[:, 0]
    images = np.repeat(gray[..., None], 3, axis=3)
    images.setflags(write=False)
    return images, raw.target.astype(np.int64)


def split_rows(split: str) -> NDArray[np.int64]:
    """Rows of one split: 60/10/30 % of every class, always the same.

    RandomState, not Generator: its numbers are frozen, and a split that moved with the numpy
    version would put training images into the test set of the model in the package.
    """
    check_choice("split", split, SPLITS)
    labels = load()[1]
    random = np.random.RandomState(SPLIT_SEED)
    chosen = []
    for label in range(10):
        rows = random.permutation(np.flatnonzero(labels == label))
        train = round(FRACTIONS["train"] * len(rows))
        val = train + round(FRACTIONS["val"] * len(rows))
        chosen.append({"train": rows[:train], "val": rows[train:val], "test": rows[val:]}[split])
    return np.sort(np.concatenate(chosen)).astype(np.int64)


@dataclass(frozen=True)
class DigitRows:
    """Source: the enlarged digits."""

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        return load()[0][rows]


def open_digits(
    name: str, root: str | Path | None = None, *, split: str = "test", size: int | None = None
) -> Dataset:
    """One clean domain; `root` is not used."""
    check_size(size)
    rows = split_rows(split)
    domain = Domain("clean", load()[1][rows], DigitRows(), rows, size=size)
    return Dataset(name, [str(digit) for digit in range(10)], [domain])
