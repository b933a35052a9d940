"""The floor: what no method that learns can undercut, in plain PyTorch. Imports no part of fretta.

One forward, the entropy of its output, one backward and one step of Adam. With `everything` all
parameters learn (the floor of TSD), otherwise only scale and shift of normalization layers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Step = Callable[[Tensor], Tensor]

_NORMS = (_BatchNorm, nn.GroupNorm, nn.LayerNorm)


def bare_forward(net: nn.Module) -> Step:
    """A prediction in eval mode and nothing else."""
    net = copy.deepcopy(net).eval().requires_grad_(False)

    def step(x: Tensor) -> Tensor:
        with torch.no_grad():
            output: Tensor = net(x)
        return output

    return step


def floor_step(net: nn.Module, everything: bool = False, lr: float = 1e-3) -> Step:
    """One entropy step, as one would write it by hand."""
    net = copy.deepcopy(net).eval().requires_grad_(everything)
    for layer in net.modules():
        if isinstance(layer, _NORMS):
            layer.requires_grad_(True)
        if isinstance(layer, _BatchNorm):  # batch statistics, also in eval mode
            layer.train()
            layer.track_running_stats = False
            layer.running_mean = layer.running_var = None
    parameters = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=lr)

    def step(x: Tensor) -> Tensor:
        logits: Tensor = net(x)
        loss = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return logits.detach()

    return step
