"""Batch norm with statistics that move along the stream: RoTTA's and NOTE's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from torch import Tensor, nn
from torch.nn import functional as F

from .replaced import measured, moments, normalized_by, per_channel

Moving = dict[str, list[Tensor]]  # mean and variance of each batch norm, by its name


def robust(net: nn.Module, moving: Moving, alpha: float) -> AbstractContextManager[None]:
    """While active the statistics move, then normalize. μ ← (1 - α) μ + α μ_batch, the variance
    likewise (biased); the gradient flows through the part of the batch."""

    def normalize(name: str, x: Tensor, epsilon: float) -> Tensor:
        wide = x.to(moving[name][0].dtype)  # under autocast x may be narrower
        batch = measured(wide, correction=0)
        mean, var = (old.lerp(new, alpha) for old, new in zip(moving[name], batch, strict=True))
        moving[name] = [mean.detach(), var.detach()]
        scale = (per_channel(var, x) + epsilon).rsqrt()
        return ((wide - per_channel(mean, x)) * scale).to(x.dtype)

    return normalized_by(net, normalize)


@contextmanager
def instance_aware(
    net: nn.Module, moving: Moving, k: float, alone: bool = False, momentum: float = 0.0
) -> Iterator[list[int]]:
    """While active, each image is normalized by the statistics of the layer, corrected where its
    own are far from them. With S(t; l) = sign(t) max(|t| - l, 0) over L positions,

    μ̂ = μ + S(μ_i - μ; k √((v + ε) / L)),  v̂ = max(0, v + S(v_i - v; k (v + ε) √(2 / (L - 1)))).

    (μ, v) are the moving statistics or, if the batch stands `alone`, its own, unbiased, to which
    the moving ones then go by `momentum`. Yields the L of the layers, as they run.
    """
    sizes: list[int] = []

    def normalize(name: str, x: Tensor, epsilon: float) -> Tensor:
        wide = x.to(moving[name][0].dtype)  # under autocast x may be narrower
        mean, var = moving[name]
        if alone and x.numel() > x.shape[1]:  # one value has no variance
            mean, var = measured(wide)
            moving[name] = [
                old.lerp(new.detach(), momentum)
                for old, new in zip(moving[name], (mean, var), strict=True)
            ]
        mean, var = per_channel(mean, x), per_channel(var, x)
        L = x[0, 0].numel()
        sizes.append(L)
        if L > 1:
            own_mean, own_var = moments(wide, list(range(2, x.dim())))
            error = k * ((var + epsilon) / L).sqrt()
            spread = k * (var + epsilon) * (2 / (L - 1)) ** 0.5
            mean = mean + shrink(own_mean - mean, error)
            var = F.relu(var + shrink(own_var - var, spread))
        return ((wide - mean) * (var + epsilon).rsqrt()).to(x.dtype)

    with normalized_by(net, normalize):
        yield sizes


def shrink(t: Tensor, by: Tensor) -> Tensor:
    """S(t; l): nothing up to l, and beyond it what is more."""
    return F.relu(t - by) - F.relu(-t - by)
