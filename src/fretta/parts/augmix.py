"""AugMix, Hendrycks et al., ICLR 2020, https://arxiv.org/abs/1912.02781: as MEMO draws its views.

A random crop, mirrored half of the time, is mixed with three chains of one to three operations on
it. Every image has its own draw; a batch goes through each kind of operation at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .pixels import rotation, sample, uniform

CHAINS, DEPTH = 3, 3
SMALL = 64  # pixels: up to here crops are shifts, as on CIFAR; above they are resized


def augmix(p: Tensor, generator: torch.Generator) -> Tensor:
    """m · crop + (1 - m) · sum_i w_i · chain_i, w ~ Dirichlet(1, 1, 1), m ~ Beta(1, 1)."""
    n = len(p)
    start = _crop(p.clamp(0, 1), generator)
    # three exponentials over their sum are Dirichlet(1, 1, 1)
    w = -uniform(n * CHAINS, 1e-7, 1, generator, like=p).log().view(n, CHAINS, 1, 1, 1)
    m = uniform(n, 0, 1, generator, like=p)
    device = generator.device
    lengths = torch.randint(1, DEPTH + 1, (n * CHAINS,), generator=generator, device=device)
    chain = start.repeat_interleave(CHAINS, 0)
    for depth in range(DEPTH):
        kinds = torch.randint(len(OPERATIONS), lengths.shape, generator=generator, device=device)
        level = uniform(len(chain), 0.01, 0.1, generator, like=p)  # severity 1 of 10
        level = level * (2 * (uniform(len(chain), 0, 1, generator, like=p) < 0.5) - 1)
        for number, operation in enumerate(OPERATIONS):
            rows = ((kinds == number) & (depth < lengths)).nonzero().flatten()
            if len(rows):
                chain[rows] = operation(chain[rows], level[rows])
    mixed = (w / w.sum(1, keepdim=True) * chain.view(n, CHAINS, *p.shape[1:])).sum(1)
    return m * start + (1 - m) * mixed


def _crop(p: Tensor, generator: torch.Generator) -> Tensor:
    """Small images: shifted by up to an eighth, black comes in. Large ones: 8 to 100 % of the area,
    3:4 to 4:3, at the size of the whole. Half of them mirrored."""
    n, sides = len(p), p.new_tensor([p.shape[-1], p.shape[-2]])
    place = torch.cat([uniform(n, -1, 1, generator, like=p).flatten(1) for _ in range(2)], 1)
    share = torch.ones_like(place)
    if max(p.shape[-2:]) > SMALL:
        area = uniform(n, 0.08, 1, generator, like=p).flatten(1)
        root = (uniform(n, -1, 1, generator, like=p).flatten(1) * 0.5 * _LOG_RATIO).exp()
        share = (area.sqrt() * torch.cat([root, 1 / root], 1)).clamp(max=1)
        offset = place * (1 - share) * sides / 2
    else:
        offset = (place * sides / 8).round()
    mirror = 2 * (uniform(n, 0, 1, generator, like=p).flatten() < 0.5).to(p) - 1
    matrix = torch.diag_embed(torch.stack([share[:, 0] * mirror, share[:, 1]], 1))
    return sample(p, matrix, offset)


_LOG_RATIO = 0.2876821  # ln 4/3


# ---- operations: pixels and a signed level in ±[0.01, 0.1] for each image -----------------------


def autocontrast(p: Tensor, level: Tensor) -> Tensor:
    """Each channel from 0 to 1."""
    low, high = p.amin((2, 3), keepdim=True), p.amax((2, 3), keepdim=True)
    return torch.where(high > low, (p - low) / (high - low).where(high > low, 1), p)


def equalize(p: Tensor, level: Tensor) -> Tensor:
    """Each channel with a flat histogram, of 256 levels as in image files."""
    index = (p.clamp(0, 1) * 255).round().long().flatten(2)
    zeros = torch.zeros(*index.shape[:2], 256, dtype=torch.long, device=p.device)
    histogram = zeros.scatter_add(2, index, torch.ones_like(index))
    last = histogram.gather(2, index.amax(2, keepdim=True))
    step = (index.shape[2] - last) // 255
    table = (step // 2 + histogram.cumsum(2) - histogram) // step.clamp(min=1)
    flat = (table.gather(2, index).clamp(max=255) / 255).to(p).view_as(p)
    return torch.where(step[..., None] > 0, flat, p)


def solarize(p: Tensor, level: Tensor) -> Tensor:
    """What is brighter than the threshold is inverted."""
    return torch.where(p >= 1 - level.abs(), 1 - p, p)


def posterize(p: Tensor, level: Tensor) -> Tensor:
    """Four bits."""
    return ((p * 255).round() / 16).floor() * 16 / 255


def rotate(p: Tensor, level: Tensor) -> Tensor:
    return sample(
        p, rotation((30 * level).trunc()), torch.zeros_like(level).view(-1, 1).expand(-1, 2)
    )


def _sheared(p: Tensor, level: Tensor, along: int) -> Tensor:
    """From the upper left corner, which stays."""
    matrix = torch.eye(2, device=p.device, dtype=p.dtype).repeat(len(p), 1, 1)
    matrix[:, along, 1 - along] = 0.3 * level.flatten()
    corner = p.new_tensor([p.shape[-1] - 1, p.shape[-2] - 1]) / 2
    return sample(p, matrix, matrix @ corner - corner)


def _translated(p: Tensor, level: Tensor, along: int) -> Tensor:
    offset = torch.zeros(len(p), 2, device=p.device, dtype=p.dtype)
    offset[:, along] = (level.flatten() * p.shape[-1 - along] / 3).trunc()
    return sample(p, torch.eye(2, device=p.device, dtype=p.dtype)[None], offset)


def shear_x(p: Tensor, level: Tensor) -> Tensor:
    return _sheared(p, level, 0)


def shear_y(p: Tensor, level: Tensor) -> Tensor:
    return _sheared(p, level, 1)


def translate_x(p: Tensor, level: Tensor) -> Tensor:
    return _translated(p, level, 0)


def translate_y(p: Tensor, level: Tensor) -> Tensor:
    return _translated(p, level, 1)


OPERATIONS = (
    *(autocontrast, equalize, solarize, posterize, rotate),
    *(shear_x, shear_y, translate_x, translate_y),
)
