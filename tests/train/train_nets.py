"""Networks and interruptions for the training tests."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from fretta.experiment.train import Progress

NETS = __name__


def dropout_net(num_classes: int = 10) -> nn.Module:
    """Draws from the global generator at every step."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(128, num_classes),
    )


SIZES: list[int] = []  # of the images that `sizes_net` was trained on


class _Sizes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            SIZES.append(x.shape[-1])
        return x


def sizes_net(num_classes: int = 10) -> nn.Module:
    return nn.Sequential(_Sizes(), dropout_net(num_classes))


def fixed_size_net(num_classes: int = 10) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, num_classes))


def wrong_head_net(num_classes: int = 10) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(3))


class StopError(Exception):
    """What an interruption looks like here."""


def stop_at(step: int) -> Callable[[Progress], None]:
    def progress(now: Progress) -> None:
        if now.step >= step:
            raise StopError

    return progress
