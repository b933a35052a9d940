"""Small networks and streams for tests, deterministic by construction."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fretta.compat import import_timm, import_transformers

CLASSES = 5
SIZE = 32
# Two ways to compute the same in float64, through an update or two: Adam divides a gradient by
# itself plus 1e-8, so roundings of 2e-16 grow to 2e-8, and a wrong number is far above this.
TIGHT = 1e-6


def grid(values: Iterable[Any], quick: Callable[[Any], bool]) -> list[Any]:
    """Parameters of a test: all of them, but those that are not `quick` with the slow tests."""

    def parameter(value: Any) -> Any:
        marks = () if quick(value) else pytest.mark.slow
        return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=marks)

    return [parameter(value) for value in values]


class Block(nn.Module):
    """A residual block with batch norm."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.short = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + self.short(x)).relu()


class ResNetLike(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(Block(8, 8, 1))
        self.layer2 = nn.Sequential(Block(8, 12, 2))
        self.layer3 = nn.Sequential(Block(12, 16, 2))
        self.layer4 = nn.Sequential(Block(16, 16, 2))
        self.fc = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x)).relu()
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def nested_bn() -> nn.Module:
    """Batch norms deep inside nested Sequentials, one of them one-dimensional."""
    inner = nn.Sequential(nn.Sequential(nn.Conv2d(8, 12, 3, 2, 1), nn.BatchNorm2d(12)), nn.ReLU())
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.Sequential(nn.BatchNorm2d(8), nn.ReLU())),
        inner,
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5)),
        nn.Linear(16, CLASSES),
    )


def group_norm() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1),
        nn.GroupNorm(2, 8),
        nn.GELU(),
        nn.Conv2d(8, 12, 3, 2, 1),
        nn.GroupNorm(3, 12),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, CLASSES),
    )


class ViTLike(nn.Module):
    """Patches, two pre-norm attention blocks, a final LayerNorm: signed features."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 8, 8)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class Wrapped(nn.Module):
    """The ResNet-like network, with something done to its logits."""

    def __init__(self, output: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.net, self.output = build("resnet-like"), output

    def forward(self, x: Tensor) -> Any:
        return self.output(self.net(x))


def timm_model(name: str, **options: object) -> nn.Module:
    model: nn.Module = import_timm().create_model(name, num_classes=CLASSES, **options)
    return model


def hf_vit() -> nn.Module:
    import_transformers()
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=SIZE,
            patch_size=8,
            num_labels=CLASSES,
        )
    )


BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "resnet-like": ResNetLike,
    "nested-bn": nested_bn,
    "group-norm": group_norm,
    "vit-like": ViTLike,
    "timm-resnet18": lambda: timm_model("resnet18"),
    "timm-vit_tiny": lambda: timm_model("vit_tiny_patch16_224", img_size=SIZE, depth=3),
    "timm-efficientnet": lambda: timm_model("efficientnet_lite0"),
    "hf-vit": hf_vit,
}


@functools.cache
def _built(name: str) -> nn.Module:
    torch.manual_seed(0)
    net = BUILDERS[name]()
    # Random statistics and affine values: a fresh net would hide the difference between modes.
    generator = torch.Generator().manual_seed(1)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1, generator=generator)
            module.running_var.uniform_(0.5, 1.5, generator=generator)
            module.weight.data.uniform_(0.5, 1.5, generator=generator)
            module.bias.data.normal_(0, 0.1, generator=generator)
        if isinstance(module, nn.Linear) and module.out_features == CLASSES:
            # confident: filters let some pass
            module.weight.data.normal_(0, 1, generator=generator)
    return net.eval()


def build(name: str) -> nn.Module:
    """A private copy of one of the networks."""
    return copy.deepcopy(_built(name))


def batches(*sizes: int, seed: int = 0, size: int = SIZE) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, 3, size, size, generator=generator) for n in sizes]


def with_rounding_noise(
    run: Callable[[nn.Module, list[Tensor]], Tensor],
    net: nn.Module,
    stream: list[Tensor],
    dtype: torch.dtype = torch.float32,
    draws: int = 3,
) -> tuple[Tensor, float]:
    """What `run` gives, and how far it moves when weights and pixels are rounded another way.

    The latter is what another memory layout, instruction set or number of threads may do to it,
    measured on the network and the stream themselves: the largest change over some random
    roundings. Two sound ways to compute differ by 0.1 to 3 times as much; tests allow 10 times.
    """
    generator = torch.Generator().manual_seed(0)

    def rounded(t: Tensor) -> Tensor:
        if not t.is_floating_point():
            return t
        return t * (1 + torch.finfo(dtype).eps * (2 * torch.rand(t.shape, generator=generator) - 1))

    exact, changes = run(net, stream), []
    for _ in range(draws):
        other = copy.deepcopy(net)
        other.load_state_dict({k: rounded(v) for k, v in net.state_dict().items()})
        changes.append(float((run(other, [rounded(x) for x in stream]) - exact).abs().max()))
    return exact, max(changes)


def snapshot(net: nn.Module) -> dict[str, object]:
    """Everything a user can see of a model."""
    return {
        "tensors": {k: v.clone() for k, v in net.state_dict().items()},
        "modes": {n: m.training for n, m in net.named_modules()},
        "grads": {n: (p.requires_grad, p.grad) for n, p in net.named_parameters()},
        "flags": {n: getattr(m, "track_running_stats", None) for n, m in net.named_modules()},
        "hooks": {
            n: (len(m._forward_hooks), len(m._forward_pre_hooks)) for n, m in net.named_modules()
        },
    }


def same(a: object, b: object) -> bool:
    """Bit-for-bit equality of nested states."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))  # type: ignore[arg-type]
    return a == b
