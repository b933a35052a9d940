"""See the losses that methods go down, without the methods' knowing."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Losses(TorchFunctionMode):
    """Inside, notes the value of every loss on which `backward` is called.

        with Losses() as losses:
            adapter(x)
        losses.values        # of one step of any method; empty if it did not learn

    Nothing is computed twice and no number changes. SAR's ascent and TEA's sampling ask for
    gradients by `torch.autograd.grad`, so that only what is descended is noted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.values: list[float] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.backward:
            self.values.append(float(args[0].detach()))
        return func(*args, **(kwargs or {}))
