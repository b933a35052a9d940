"""Weights from files: safetensors, or torch files restricted to tensors."""

from __future__ import annotations

import os
import pickle
import struct
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ..errors import WeightsError

TORCH_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".tar")
# Training scripts save more than weights; the state dict is under one of these keys.
_WRAPPERS = ("state_dict", "model_state_dict", "model", "net", "model_state")


def read_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a weights file by name. Never executes code from the file."""
    file = Path(path)
    if not file.is_file():
        raise WeightsError(
            f"no weights file at {str(file)!r}; looked in {str(file.absolute().parent)!r}"
        )
    if file.suffix == ".safetensors":
        try:
            return load_file(file)
        except SafetensorError as error:
            raise WeightsError(f"{str(file)!r} is not a safetensors file: {error}") from error
    if file.suffix not in TORCH_SUFFIXES:
        raise WeightsError(
            f"{str(file)!r} has the ending {file.suffix!r}; weights are read from .safetensors or,"
            f" restricted to tensors, from {', '.join(TORCH_SUFFIXES)}"
        )
    try:
        with warnings.catch_warnings():  # torch warns of pickle protocols it may then refuse
            warnings.simplefilter("ignore")
            content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{str(file)!r} was refused: it is a pickle that wants to load more than tensors, which"
            " can execute code. If you trust it, save its state_dict() as safetensors where it was"
            " made"
        ) from error
    except (
        *(RuntimeError, EOFError, zipfile.BadZipFile, ValueError, OSError),
        *(struct.error, LookupError, TypeError, AttributeError),  # any bytes called .pt
    ) as error:
        raise WeightsError(f"{str(file)!r} cannot be read as a torch file: {error}") from error
    return _state_dict(content, file)


def _state_dict(content: Any, file: Path) -> dict[str, Tensor]:
    for key in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content:
        raise WeightsError(f"{str(file)!r} holds a {type(content).__name__}, not a state dict")
    wrong = [k for k, v in content.items() if not isinstance(v, Tensor) or not isinstance(k, str)]
    if wrong:
        raise WeightsError(f"{str(file)!r} is not a state dict: {wrong[:5]} are not named tensors")
    return content


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Load a weights file into a model; every name and shape must fit."""
    load_state(model, own_names(read_weights(path), model), repr(str(path)))


def own_names(state: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """The names of the model: without what DataParallel, torch.compile or a Lightning module put
    before all of them, and with the counters that old files of batch norms lack."""
    own = model.state_dict()
    for prefix in ("module.", "_orig_mod.", "model."):
        if own.keys().isdisjoint(state) and all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    counters = {name: own[name] for name in own if name.endswith("num_batches_tracked")}
    return {**counters, **state} if not own.keys().isdisjoint(state) else dict(state)


def load_state(model: nn.Module, state: Mapping[str, Tensor], what: str) -> None:
    """Load tensors into a model; `what` names them in the error where they do not fit."""
    own = model.state_dict()
    missing = sorted(own.keys() - state.keys())
    unknown = sorted(state.keys() - own.keys())
    if missing or unknown:
        raise WeightsError(
            f"{what} does not fit {type(model).__name__}: {len(missing)} names missing"
            f" {missing[:4]}, {len(unknown)} unknown {unknown[:4]}"
        )
    shapes = _other_shapes(own, state)
    if shapes:
        listed = [
            f"{name}: file {tuple(state[name].shape)}, model {tuple(own[name].shape)}"
            for name in shapes[:4]
        ]
        hint = ""
        if _is_head(shapes, own, state):
            hint = ". Is num_classes right (--num-classes on the command line)?"
        raise WeightsError(f"{what} does not fit {type(model).__name__}: {'; '.join(listed)}{hint}")
    broken = [name for name, tensor in state.items() if bool(tensor.isnan().any())]
    if broken:
        raise WeightsError(f"{what} has NaN in {', '.join(broken[:4])}: the training failed")
    model.load_state_dict(state)


def initialize(model: nn.Module, state: Mapping[str, Tensor], what: str) -> list[str]:
    """Load everything but a head of another size; returns the names that keep fresh values."""
    own = model.state_dict()
    state = own_names(state, model)
    fresh = _other_shapes(own, state)
    if not _is_head(fresh, own, state):
        raise WeightsError(
            f"{what} cannot initialize {type(model).__name__}: besides a head of another size, "
            f"these tensors have other shapes: {fresh[:4]}"
        )
    kept = {name: own[name] for name in fresh}
    load_state(model, {**state, **kept}, what)
    return fresh


def head_size(model: nn.Module, state: Mapping[str, Tensor]) -> int | None:
    """The classes of the head in these tensors, where nothing but the head does not fit."""
    own = model.state_dict()
    head = _other_shapes(own, state)
    if not head or own.keys() != state.keys() or not _is_head(head, own, state):
        return None
    return len(state[head[0]])


def _is_head(names: list[str], own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> bool:
    """Linear layers, one or several, that differ in the number of classes and nothing else."""
    shapes = [(own[name].shape, state[name].shape) for name in names]
    sizes = {(a[0], b[0]) if a and b and a[1:] == b[1:] else None for a, b in shapes}
    return len(sizes) <= 1 and None not in sizes


def _other_shapes(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> list[str]:
    return [name for name in own if name in state and state[name].shape != own[name].shape]
