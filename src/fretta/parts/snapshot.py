"""Remember the adapted tensors, put them back; and running state as plain, savable values."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..errors import StateError


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


def capture(value: Any) -> Any:
    """A value of a method's running state as tensors and plain values that never change again."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, Optimizer):
        return copy.deepcopy(value.state_dict())
    if hasattr(value, "state_dict"):
        return value.state_dict()
    if isinstance(value, Mapping):
        return {key: capture(item) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise StateError(
        f"a method keeps a {type(value).__name__} as running state, which cannot be saved; use"
        " tensors, numbers, optimizers, generators, or an object with state_dict() and"
        " load_state_dict()"
    )


def revive(current: Any, saved: Any, device: torch.device) -> Any:
    """The inverse of `capture`: load into the current value, or return what replaces it."""
    if isinstance(current, torch.Generator):
        if current.get_state().numel() == saved.numel():  # else: of another kind of device
            current.set_state(saved.cpu())
        return current
    if hasattr(current, "load_state_dict"):
        current.load_state_dict(copy.deepcopy(saved) if isinstance(current, Optimizer) else saved)
        return current
    if isinstance(saved, Tensor):
        kind = current.dtype if isinstance(current, Tensor) else saved.dtype
        return saved.to(device, kind, copy=True)
    if isinstance(saved, Mapping):
        return {key: revive(None, item, device) for key, item in saved.items()}
    return saved
