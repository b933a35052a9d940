"""Transforms that destroy the object in an image and keep what is around it (DeYO).

Which order patches or pixels get is given from outside, so that nothing here is random.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def ordered_patches(x: Tensor, n: int, order: Tensor) -> Tensor:
    """The n × n patches of each image in the order of its row in (N, n²) `order`.

    Sides that n does not divide are scaled down to a multiple and back.
    """
    size = x.shape[-2:]
    height, width = (max(side // n, 1) * n for side in size)
    x = _scaled(x, height, width)
    count, channels = x.shape[:2]
    h, w = height // n, width // n
    patches = x.reshape(count, channels, n, h, n, w).permute(0, 2, 4, 1, 3, 5)
    patches = patches.reshape(count, n * n, channels * h * w)
    index = order.to(x.device)[:, :, None].expand(-1, -1, patches.shape[2])
    patches = patches.gather(1, index).reshape(count, n, n, channels, h, w)
    return _scaled(patches.permute(0, 3, 1, 4, 2, 5).reshape(x.shape), *size)


def ordered_pixels(x: Tensor, order: Tensor) -> Tensor:
    """All images with their pixels in the order (H·W,)."""
    return x.flatten(2)[:, :, order.to(x.device)].reshape(x.shape)


def occluded(x: Tensor, size: int, row: int, column: int) -> Tensor:
    """A square of the image's mean color over its upper left corner (row, column) and beyond."""
    x, mean = x.clone(), x.mean((2, 3), keepdim=True)
    x[:, :, row : row + size, column : column + size] = mean
    return x


def _scaled(x: Tensor, height: int, width: int) -> Tensor:
    if x.shape[-2:] == (height, width):
        return x
    return F.interpolate(x, (height, width), mode="bilinear", align_corners=False, antialias=True)
