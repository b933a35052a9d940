"""Operations on pixels: (N, C, H, W) in [0, 1], with one strength for all images or one for each.

A strength is a tensor of shape (1, 1, 1, 1) or (N, 1, 1, 1). Operations on color leave images
alone that have none.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

_LUMA = (0.2989, 0.587, 0.114)


def uniform(
    n: int, low: float, high: float, generator: torch.Generator, like: Tensor | None = None
) -> Tensor:
    """(n, 1, 1, 1) strengths; the numbers do not depend on the precision of the images."""
    draw = torch.rand(n, 1, 1, 1, generator=generator, device=generator.device)
    draw = low + (high - low) * draw
    return draw if like is None else draw.to(like)


def gray(p: Tensor) -> Tensor:
    """(N, 1, H, W): luminance, or the mean of channels that are not red, green and blue."""
    if p.shape[1] != 3:
        return p.mean(1, keepdim=True)
    return (p * p.new_tensor(_LUMA).view(3, 1, 1)).sum(1, keepdim=True)


def _blend(p: Tensor, other: Tensor, strength: Tensor) -> Tensor:
    return (other + strength * (p - other)).clamp(0, 1)


def brightness(p: Tensor, strength: Tensor) -> Tensor:
    return (p * strength).clamp(0, 1)


def contrast(p: Tensor, strength: Tensor) -> Tensor:
    return _blend(p, gray(p).mean((1, 2, 3), keepdim=True), strength)


def saturation(p: Tensor, strength: Tensor) -> Tensor:
    return _blend(p, gray(p), strength) if p.shape[1] == 3 else p


def gamma(p: Tensor, strength: Tensor) -> Tensor:
    return p.clamp(0, 1) ** strength


def hue(p: Tensor, turn: Tensor) -> Tensor:
    """Turn the color wheel; 1 is all the way round."""
    if p.shape[1] != 3:
        return p
    red, green, blue = p.unbind(1)
    value, largest = p.max(1)
    chroma = value - p.amin(1)
    unit = chroma.where(chroma > 0, 1)
    sextant = torch.where(
        largest == 0,
        (green - blue) / unit,
        torch.where(largest == 1, 2 + (blue - red) / unit, 4 + (red - green) / unit),
    )
    angle = (sextant + 6 * turn[:, 0])[:, None]
    k = (p.new_tensor([5.0, 3.0, 1.0]).view(3, 1, 1) + angle) % 6
    return value[:, None] - chroma[:, None] * torch.minimum(k, 4 - k).clamp(0, 1)


def sample(
    p: Tensor, matrix: Tensor, offset: Tensor, outside: str = "zeros", margin: int = 0
) -> Tensor:
    """Bilinear: the output at u, from the center, is the input at matrix · u + offset, in pixels.

    matrix   (1 or N, 2, 2), of (x, y)
    offset   (1 or N, 2)
    outside  "zeros", "border" (the edge goes on) or "reflection" (without repeating the edge)
    margin   pixels that the output is larger by, on each side
    """
    h, w = p.shape[-2:]
    ys = torch.arange(-margin, h + margin, device=p.device, dtype=p.dtype) - (h - 1) / 2
    xs = torch.arange(-margin, w + margin, device=p.device, dtype=p.dtype) - (w - 1) / 2
    grid = torch.stack(torch.meshgrid(xs, ys, indexing="xy"), -1)
    where = grid @ matrix.to(p).transpose(1, 2)[:, None] + offset.to(p)[:, None, None]
    where = where / p.new_tensor([max(w - 1, 1) / 2, max(h - 1, 1) / 2])
    where = where.expand(len(p), -1, -1, -1)
    return F.grid_sample(p, where, "bilinear", outside, align_corners=True)


def rotation(degrees: Tensor, scale: Tensor | float = 1.0) -> Tensor:
    """(n, 2, 2): where `sample` looks to show the image turned and scaled by so much."""
    angle = torch.deg2rad(degrees.flatten())
    cos, sin = angle.cos(), angle.sin()
    matrix = torch.stack([cos, sin, -sin, cos], 1).view(-1, 2, 2)
    return matrix / (scale.view(-1, 1, 1) if isinstance(scale, Tensor) else scale)


def blur(p: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian of 5 × 5 pixels; the result is 2 pixels smaller on each side. One sigma for all."""
    at = torch.arange(-2.0, 3.0, device=p.device, dtype=p.dtype)
    kernel = (-0.5 * (at / sigma.flatten()[:1].to(p)) ** 2).exp()
    kernel = (kernel / kernel.sum()).expand(p.shape[1], 1, 5)
    p = F.conv2d(p, kernel[:, :, None, :], groups=p.shape[1])
    return F.conv2d(p, kernel[:, :, :, None], groups=p.shape[1])
