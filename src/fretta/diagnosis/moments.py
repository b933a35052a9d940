"""How far the statistics of norm layers are from a reference, against what sampling alone explains.

Everything is in units of the reference's standard deviation σ. Of the input x of a layer, each
image gives m_i, the mean of (x - μ)/σ over its pixels, and s_i, the mean of its square, for every
channel. Five sums over the images are enough (with c = mean m):

    mean       distance c²                    noise Var(m) / n
    variance   distance (mean s - c² - 1)²    noise Var(q) / n,  q_i = s_i - 2 c m_i + c²

so that a stream of any length needs as much memory as one image. q_i is the second moment about
the mean of the stream. Both are averaged over the channels.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.instancenorm import _InstanceNorm

from ..parts.norm import batch_norms, before_forward, is_batch_norm, norm_layers

FLOOR = 1e-3  # of a layer's mean variance: channels that were dead in training have next to none


@dataclass(frozen=True)
class Reference:
    """Mean and variance of every channel; how well they are known, if they were sampled."""

    mean: Tensor
    var: Tensor
    noise: Tensor | None = None  # (2, C): of the mean and the variance, in these units


@dataclass(frozen=True)
class LayerShift:
    """One layer: squared distances, averaged over channels, and what sampling explains of them."""

    name: str
    channels: int
    mean: float
    mean_noise: float
    var: float
    var_noise: float
    mean_noise_of_one: float = 0.0  # noise of a single image; of a batch of b it is 1/b of this
    var_noise_of_one: float = 0.0

    @property
    def moved(self) -> float:
        """Distance of mean and variance without the noise, in standard deviations."""
        shift = max(0.0, self.mean - self.mean_noise) + max(0.0, self.var - self.var_noise) / 2
        return float(shift**0.5)

    @property
    def ratio(self) -> float:
        """Squared distance as a multiple of its noise; 1 where only sampling is at work."""
        noise = self.mean_noise + self.var_noise / 2
        return (self.mean + self.var / 2) / noise if noise else 0.0

    def noise_of_batch(self, size: int) -> float:
        """What batches of so many images add to the distance, in standard deviations."""
        noise = self.mean_noise_of_one + self.var_noise_of_one / 2
        return float((noise / size) ** 0.5)


class Moments:
    """The five sums of one layer."""

    def __init__(self, reference: Reference | None, channels: int) -> None:
        zero, one = torch.zeros(channels).double(), torch.ones(channels).double()
        mean, var = (zero, one) if reference is None else (reference.mean, reference.var)
        self.center = mean.detach().double().cpu()
        var = var.detach().double().cpu()
        self.scale = var.clamp_min(FLOOR * float(var.mean()) or 1.0).sqrt()
        self.known = None if reference is None else reference.noise
        self.sums = torch.zeros(5, channels, dtype=torch.float64)
        self.images = 0

    def add(self, x: Tensor, axis: int) -> Tensor:
        """Take the images of a batch; returns how far each is, squared, averaged over channels.

        That is the squared 2-Wasserstein distance of two normal distributions:
        m² + (deviation of the image - 1)².
        """
        x = x.detach().movedim(axis, 1).flatten(2) if x.dim() > 2 else x.detach().unsqueeze(2)
        center, scale = (
            v.to(x.device, torch.float32).view(1, -1, 1) for v in (self.center, self.scale)
        )
        z = (x.float() - center) / scale
        m, s = z.mean(2).double().cpu(), z.square().mean(2).double().cpu()
        self.sums += torch.stack([v.sum(0) for v in (m, m * m, s, s * s, s * m)])
        self.images += len(x)
        deviation = (s - m * m).clamp_min(0).sqrt()
        far: Tensor = (m.square() + (deviation - 1).square()).mean(1)
        return far

    def _per_channel(self) -> tuple[Tensor, Tensor, Tensor]:
        """(mean, variance, (2, C) noise of one image)."""
        n = self.images
        m, mm, s, ss, sm = self.sums / n
        fair = n / max(1, n - 1)  # unbiased
        var_m, var_s, both = mm - m * m, ss - s * s, sm - s * m
        var_q = var_s + 4 * m * m * var_m - 4 * m * both
        return m, s - m * m, torch.stack([var_m, var_q]).clamp_min(0) * fair

    def reference(self) -> Reference:
        """These images as the reference of others."""
        m, var, noise = self._per_channel()
        mean = self.center + m * self.scale
        own = var.clamp_min(FLOOR * float(var.mean()) or 1.0)
        noise = noise / self.images / torch.stack([own, own * own])
        return Reference(mean, var * self.scale.square(), noise)

    def shift(self, name: str) -> LayerShift:
        m, var, one = self._per_channel()
        noise = one / self.images + (0 if self.known is None else self.known)
        values = (m * m, noise[0], (var - 1).square(), noise[1], one[0], one[1])
        mean, mean_noise, v, v_noise, mean_one, var_one = (float(t.mean()) for t in values)
        return LayerShift(name, len(m), mean, mean_noise, v, v_noise, mean_one, var_one)


class Watch:
    """The moments of every watched layer, in the order in which the model calls them.

    Batch norms have their reference: the running statistics. Other norm layers need one that was
    measured on source images (`references`).
    """

    def __init__(self, net: nn.Module, references: dict[str, Reference] | None = None) -> None:
        batch = batch_norms(net, running=True)
        self.layers = batch or norm_layers(net)
        self.batch_norms = len(batch)
        self.references = references or {}
        self.moments: dict[str, Moments] = {}
        self.images = 0  # in the batch that is under way
        self.distances: dict[str, Tensor] = {}  # of each image of the last batch

    def _take(self, name: str, layer: Any, inputs: tuple[Any, ...]) -> None:
        x = inputs[0]
        if not isinstance(x, Tensor) or x.dim() < 2 or len(x) != self.images:
            return  # windows of images, say, are no sample of independent rows
        axis = channel_axis(layer, x)
        if name not in self.moments:
            own = None
            if self.batch_norms:
                own = Reference(layer.running_mean, layer.running_var)
            self.moments[name] = Moments(self.references.get(name, own), x.shape[axis])
        self.distances[name] = self.moments[name].add(x, axis)

    def watching(self, images: int) -> AbstractContextManager[None]:
        """While active, a forward of so many images is measured."""
        self.images = images
        return before_forward(self.layers, self._take)

    def distances_early(self) -> Tensor | None:
        """How far each image of the last batch is, by the early layers."""
        names = list(self.moments)[: quarter(len(self.moments))]
        if not names:
            return None
        return torch.stack([self.distances[name] for name in names]).mean(0).sqrt()

    def shifts(self) -> list[LayerShift]:
        return [moments.shift(name) for name, moments in self.moments.items()]

    def measured(self) -> dict[str, Reference]:
        return {name: moments.reference() for name, moments in self.moments.items()}


def quarter(layers: int) -> int:
    """How many of so many layers are early, and how many late."""
    return min(layers, max(1, layers // 4))


def channel_axis(layer: nn.Module, x: Tensor) -> int:
    """1, but the last axis of what enters a LayerNorm (unless it is one for images)."""
    if is_batch_norm(layer) or isinstance(layer, nn.GroupNorm | _InstanceNorm):
        return 1
    weight = getattr(layer, "weight", None)
    width = weight.numel() if isinstance(weight, Tensor) else x.shape[-1]
    return 1 if x.dim() == 4 and x.shape[1] == width != x.shape[-1] else x.dim() - 1
