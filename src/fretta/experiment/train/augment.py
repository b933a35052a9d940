"""Augmentation, on whole batches where the images have one size.

Every function takes its own generator, seeded by (seed, step): what an image looks like does not
depend on workers, on threads, or on where a run was interrupted.
"""

from __future__ import annotations

import hashlib

import torch
import torch.nn.functional as F
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, as Pillow's conversion to gray


def generator_for(*key: int | str) -> torch.Generator:
    """A generator whose numbers depend on the key and nothing else."""
    digest = hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def random_crop(x: Tensor, pad: int, random: torch.Generator) -> Tensor:
    """Shift each image by up to `pad` pixels; black comes in at the border."""
    n, _, height, width = x.shape
    top, left = torch.randint(0, 2 * pad + 1, (2, n, 1), generator=random)
    rows = (top + torch.arange(height))[:, None, :, None]
    columns = (left + torch.arange(width))[:, None, None, :]
    image = torch.arange(n)[:, None, None, None]
    channel = torch.arange(x.shape[1])[None, :, None, None]
    return F.pad(x, (pad, pad, pad, pad))[image, channel, rows, columns]


def random_flip(x: Tensor, random: torch.Generator) -> Tensor:
    """Mirror half of the images, left to right."""
    flip = torch.rand(len(x), generator=random) < 0.5
    return torch.where(flip[:, None, None, None], x.flip(3), x)


def random_resized_crop(
    image: Tensor, size: int, random: torch.Generator, least: float = 0.7
) -> Tensor:
    """Cut `least` to 1 of the area of one (3, H, W) image at an aspect of 3:4 to 4:3, and resize.

    Ten tries; if none fits into the image, its center at the nearest allowed aspect.
    """
    height, width = image.shape[1:]
    draws = torch.rand((10, 4), generator=random, dtype=torch.float64).tolist()
    for share, aspect, down, across in draws:
        area = height * width * (least + (1 - least) * share)
        ratio = (3 / 4) * (16 / 9) ** aspect  # log-uniform
        w, h = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < w <= width and 0 < h <= height:
            top, left = int(down * (height - h + 1)), int(across * (width - w + 1))
            break
    else:
        ratio = min(max(width / height, 3 / 4), 4 / 3)
        w, h = min(width, round(height * ratio)), min(height, round(width / ratio))
        top, left = (height - h) // 2, (width - w) // 2
    cut = image[None, :, top : top + h, left : left + w].float()
    resized = F.interpolate(cut, (size, size), mode="bilinear", align_corners=False, antialias=True)
    return resized[0].round_().clamp_(0, 255).to(torch.uint8)


def gray(x: Tensor) -> Tensor:
    """(n, 3, H, W) to (n, 1, H, W)."""
    return (x * torch.tensor(LUMA, dtype=x.dtype).view(1, 3, 1, 1)).sum(1, keepdim=True)


def color_jitter(x: Tensor, strength: float, random: torch.Generator) -> Tensor:
    """Brightness, contrast, saturation (factors 1 ± strength) and hue (± strength turns).

    `x` is (n, 3, H, W) in [0, 1]. Factors are drawn per image, the order of the four per batch.
    """
    draws = torch.rand((4, len(x), 1, 1, 1), generator=random) * 2 - 1
    factor = 1 + strength * draws
    for which in torch.randperm(4, generator=random).tolist():
        if which == 0:
            x = x * factor[0]
        elif which == 1:
            mean = gray(x).mean(dim=(1, 2, 3), keepdim=True)
            x = mean + (x - mean) * factor[1]
        elif which == 2:
            plain = gray(x)
            x = plain + (x - plain) * factor[2]
        else:
            x = shift_hue(x, strength * draws[3])
        x = x.clamp(0, 1)
    return x


def shift_hue(x: Tensor, turns: Tensor) -> Tensor:
    """Rotate the hue of HSV by `turns` of the circle; value and saturation stay.

    Hue in sixths h ∈ [0, 6): channel k of the result is V − C·clip(min(a, 4 − a), 0, 1) with
    a = (k + h) mod 6 and k = 5, 3, 1 for red, green, blue.
    """
    value, chroma = x.amax(1), x.amax(1) - x.amin(1)
    red, green, blue = x.unbind(1)
    safe = torch.where(chroma > 0, chroma, 1)
    hue = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    hue = hue + 6 * turns.view(-1, 1, 1)
    channels = []
    for k in (5, 3, 1):
        a = torch.remainder(hue + k, 6)
        channels.append(value - chroma * torch.minimum(a, 4 - a).clamp(0, 1))
    return torch.stack(channels, 1)


def random_gray(x: Tensor, share: float, random: torch.Generator) -> Tensor:
    """Take the color from a share of the images."""
    chosen = torch.rand((len(x), 1, 1, 1), generator=random) < share
    return torch.where(chosen, gray(x).expand_as(x), x)
