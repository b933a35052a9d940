"""Copies of a model and of tensors by name: kept, put back, pulled toward others."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ModelError, StateError
from .norm import norm_layers


def private_copy(net: nn.Module, share: bool = False) -> nn.Module:
    """A copy; with `share` its parameters and the statistics of norm layers lie in the memory of
    `net`. Other buffers may move in a forward."""
    memo: dict[int, Any] = {}
    if share:
        plain = (p for p in net.parameters() if type(p) is nn.Parameter)
        memo = {id(p): nn.Parameter(p.data, p.requires_grad) for p in plain}
        norms = norm_layers(net).values()
        memo |= {id(b): b for layer in norms for b in layer.buffers(recurse=False)}
    try:
        return copy.deepcopy(net, memo)
    except (RuntimeError, TypeError) as error:
        raise ModelError(
            f"the model cannot be copied ({type(error).__name__}: {error}); adapt it itself:"
            " inplace=True"
        ) from error


def copy_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


@torch.no_grad()
def put_back(tensors: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Copy saved values into the tensors, in place; the names must agree."""
    if tensors.keys() != saved.keys():
        missing = sorted(tensors.keys() - saved.keys())
        extra = sorted(saved.keys() - tensors.keys())
        raise StateError(
            f"the saved tensors are those of another model: missing {missing[:5]}, unknown"
            f" {extra[:5]}"
        )
    for name, tensor in tensors.items():
        if tensor.shape != saved[name].shape:
            raise StateError(
                f"the saved tensor {name!r} has shape {tuple(saved[name].shape)}, the model's "
                f"{tuple(tensor.shape)}; load the state into an adapter of the same model"
            )
    for name, tensor in tensors.items():
        tensor.copy_(saved[name])


@torch.no_grad()
def pull(tensors: Mapping[str, Tensor], toward: Mapping[str, Tensor], share: float) -> None:
    """θ ← (1 - share) θ + share θ', in place, for every name of `tensors`.

    Toward `model.origin` it bounds how far adaptation can go; with the roles of teacher and
    student it is the update of an averaged teacher.
    """
    if share and tensors:
        ours, theirs = list(tensors.values()), [toward[name] for name in tensors]
        torch._foreach_lerp_(ours, theirs, share)
