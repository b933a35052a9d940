"""Networks that `--model diagnosis_nets:...` builds, and facts made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from fretta.diagnosis import Facts, LayerShift, Outputs


def _network(norm: nn.Module, classes: int) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, 2, 1), norm, nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes)),
    )
    return net.eval()


def group_norm(num_classes: int = 4) -> nn.Module:
    return _network(nn.GroupNorm(2, 8), num_classes)


def without_norm(num_classes: int = 4) -> nn.Module:
    return _network(nn.Identity(), num_classes)


def thousand(num_classes: int = 1000) -> nn.Module:
    return _network(nn.BatchNorm2d(8), num_classes)


def facts(moved: float = 0.1, counts: tuple[int, ...] = (128,) * 4, **changes: Any) -> Facts:
    """512 images, of which the layers say that they moved by `moved`."""
    # noise that is next to nothing against the distance; a batch of 64 has a noise of 0.05
    layer = LayerShift("bn", 8, moved**2, 0.0, 0.0, 0.0, 0.0025 * 64, 0.0)
    own = Outputs(sum(counts), list(counts), 0.9, 0.2, 1.3, 0.5, 64)
    even = [sum(counts) // len(counts)] * len(counts)
    made = Facts(sum(counts), 64, 4, 4, [layer] * 4, own, even)
    return replace(made, **changes)
