"""Optimisers over the adapted parameters, one update, and the sharpness-aware ascent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer

from ..errors import ConfigError

OptimizerName = Literal["adam", "sgd"]


@dataclass(frozen=True)
class Optim:
    """An optimiser as plain data; `build` makes a fresh one."""

    name: str
    lr: float
    momentum: float

    def check(self) -> None:
        if self.name not in ("adam", "sgd"):
            raise ConfigError(f"optimizer={self.name!r} is unknown; choose 'adam' or 'sgd'")
        if not self.lr >= 0:
            raise ConfigError(f"lr={self.lr!r} cannot work; give a number >= 0")
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"momentum={self.momentum!r} cannot work; give a number in [0, 1)")

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        """Momentum is SGD's, or β1 of Adam (whose β2 is 0.999)."""
        self.check()
        if self.name == "adam":
            return Adam(parameters, lr=self.lr, betas=(self.momentum, 0.999))
        return SGD(parameters, lr=self.lr, momentum=self.momentum)


def update(optimizer: Optimizer, loss: Tensor) -> None:
    """One step down the gradient of the loss."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


@contextmanager
def ascended(parameters: list[Tensor], loss: Tensor, rho: float) -> Iterator[None]:
    """Inside, the parameters stand rho up the gradient: θ + ρ ∇L / ‖∇L‖ (SAM, Foret et al. 2021).

    On the way out, also by an exception, they stand exactly where they stood before.
    """
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    pairs = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
    before = [p.detach().clone() for p, _ in pairs]
    with torch.no_grad():
        norm = torch.stack([g.norm() for _, g in pairs]).norm()
        for p, g in pairs:
            p.add_(g * (rho / (norm + 1e-12)))
    try:
        yield
    finally:
        with torch.no_grad():
            for (p, _), saved in zip(pairs, before, strict=True):
                p.copy_(saved)
