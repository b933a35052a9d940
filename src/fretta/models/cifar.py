"""ResNets for 32×32 images. No hub, no download: `load("cifar:resnet20", weights=...)`.

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016,
https://arxiv.org/abs/1512.03385. resnet20 to resnet56 are those of its section 4.2 (three stages of
16, 32, 64 channels, shortcuts without parameters). resnet18 is the ImageNet network with the stem
that CIFAR uses: 3×3, stride 1, no pooling. `digits:resnet8` is for the embedded data set: one block
per stage, and a stem of stride 2, since its 32×32 images are enlarged from 8×8; four times cheaper.
"""

from __future__ import annotations

import difflib
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import ConfigError


def _conv(inputs: int, outputs: int, stride: int, kernel: int = 3) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class PaddedIdentity(nn.Module):
    """Option A of the paper: every second pixel, new channels zero, half on either side."""

    def __init__(self, extra: int) -> None:
        super().__init__()
        self.before, self.after = extra // 2, extra - extra // 2

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.before, self.after))


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut: y = ReLU(F(x) + shortcut(x))."""

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: nn.Module) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, outputs, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = _conv(outputs, outputs, 1)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class CifarResNet(nn.Module):
    """A 3×3 stem, stages of blocks that each halve the size, average pooling, a linear head."""

    def __init__(
        self,
        depths: tuple[int, ...],
        width: int,
        num_classes: int,
        projection: bool = False,
        stem_stride: int = 1,
    ) -> None:
        super().__init__()
        self.conv1 = _conv(3, width, stem_stride)
        self.bn1 = nn.BatchNorm2d(width)
        channels = width
        self.stages = [f"layer{number + 1}" for number in range(len(depths))]
        for number, (name, depth) in enumerate(zip(self.stages, depths, strict=True)):
            blocks = []
            for i in range(depth):
                outputs, stride = width * 2**number, 2 if number > 0 and i == 0 else 1
                shortcut = _shortcut(channels, outputs, stride, projection)
                blocks.append(Block(channels, outputs, stride, shortcut))
                channels = outputs
            self.add_module(name, nn.Sequential(*blocks))
        self.linear = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        for name in self.stages:
            x = self.get_submodule(name)(x)
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


def _shortcut(inputs: int, outputs: int, stride: int, projection: bool) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    if projection:  # option B: 1×1 convolution and batch norm
        return nn.Sequential(_conv(inputs, outputs, stride, kernel=1), nn.BatchNorm2d(outputs))
    return PaddedIdentity(outputs - inputs)


# arguments of CifarResNet; resnet(6n + 2) has n blocks in each of the three stages
NETWORKS: dict[str, dict[str, Any]] = {
    "cifar:resnet20": {"depths": (3, 3, 3), "width": 16},
    "cifar:resnet32": {"depths": (5, 5, 5), "width": 16},
    "cifar:resnet44": {"depths": (7, 7, 7), "width": 16},
    "cifar:resnet56": {"depths": (9, 9, 9), "width": 16},
    "cifar:resnet18": {"depths": (2, 2, 2, 2), "width": 64, "projection": True},
    "digits:resnet8": {"depths": (1, 1, 1), "width": 16, "stem_stride": 2},
}


def small_network(spec: str, num_classes: int | None = None) -> CifarResNet:
    """A network for 32×32 images with fresh weights; 10 classes by default."""
    if spec not in NETWORKS:
        close = difflib.get_close_matches(spec.lower(), NETWORKS, 1, 0.5)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(f"no network {spec}; {hint}there are {', '.join(NETWORKS)}")
    classes = 10 if num_classes is None else num_classes
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 1:
        raise ConfigError(f"num_classes={num_classes!r}; a number of classes from 1 is expected")
    return CifarResNet(num_classes=classes, **NETWORKS[spec])
