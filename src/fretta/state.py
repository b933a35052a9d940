"""Remember what adaptation changes and put it back, bit for bit, from memory or from a file.

A snapshot holds the adapted tensors, other buffers that moved, and the running state of the
method. `capture` turns running state into tensors and plain values, fit for a file. `copy_value`
does the same in memory, but large stores (support bank, replay buffer) copy themselves: their
`snapshot()` is an independent object that shares the rows, which never change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from .errors import StateError
from .method import Method
from .parts.classifier import Classifier
from .parts.tensors import copy_tensors, put_back

LARGE = 2**18  # numbers in a tensor
WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def capture(value: Any) -> Any:
    """A value of a method's running state as tensors and plain values that never change again."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if hasattr(value, "state_dict"):
        return capture(value.state_dict())
    if isinstance(value, Mapping):
        return {key: capture(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [capture(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise StateError(
        f"a method keeps a {type(value).__name__} as running state, which cannot be saved; use"
        " tensors, numbers, optimizers, generators, or an object with state_dict() and"
        " load_state_dict()"
    )


def copy_value(value: Any) -> Any:
    """`capture`, but a store that has `snapshot()` copies itself."""
    return value.snapshot() if hasattr(value, "snapshot") else capture(value)


def revive(current: Any, saved: Any, device: torch.device) -> Any:
    """The inverse of `capture` and `copy_value`: the current value, filled, or a new one."""
    if hasattr(saved, "snapshot"):
        return saved.snapshot()
    if isinstance(current, torch.Generator):
        if current.get_state().numel() == saved.numel():  # else: of another kind of device
            current.set_state(saved.cpu())
        return current
    if hasattr(current, "load_state_dict"):
        current.load_state_dict(capture(saved))
        return current
    if isinstance(saved, Tensor):
        kind = current.dtype if isinstance(current, Tensor) else saved.dtype
        return saved.to(device, kind, copy=True)
    if isinstance(saved, Mapping):
        now = current if isinstance(current, Mapping) else {}
        return {key: revive(now.get(key), item, device) for key, item in saved.items()}
    if isinstance(saved, list):
        old = current if isinstance(current, list) and len(current) == len(saved) else None
        return [revive(old and old[i], item, device) for i, item in enumerate(saved)]
    return saved


def digest(value: Any) -> str:
    """Of tensors and plain values in any nesting: one bit changed, another digest."""
    mark = hashlib.blake2b(digest_size=16)
    _feed(mark.update, value)
    return mark.hexdigest()


def _feed(update: Callable[[bytes], object], value: Any) -> None:
    if isinstance(value, Tensor):
        update(f"{value.dtype}{tuple(value.shape)}".encode())
        update(_bits(value.detach()))
    elif isinstance(value, Mapping):
        update(f"{{{len(value)}".encode())
        for key in sorted(value, key=str):
            update(f"{key}:".encode())
            _feed(update, value[key])
    elif isinstance(value, list | tuple):
        update(f"[{len(value)}".encode())
        for item in value:
            _feed(update, item)
    else:
        update(f"{type(value).__name__} {value!r};".encode())


def _bits(tensor: Tensor) -> bytes:
    """All of a small tensor; of a large one the sum of its words, which is exact in any order."""
    if tensor.numel() <= LARGE or tensor.element_size() not in WORDS or tensor.is_complex():
        # a single value may have any stride, which contiguous() leaves as it is
        copy = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        return copy.reshape(-1).view(torch.uint8).numpy().tobytes()
    return str(int(tensor.view(WORDS[tensor.element_size()]).sum())).encode()


def take_snapshot(
    model: Classifier, method: Method, keep: Callable[[Any], Any] = capture
) -> dict[str, Any]:
    return {
        "adapted": copy_tensors(model.adapted),
        "buffers": model.moved_buffers(),
        "running": {name: keep(value) for name, value in method.running_state().items()},
    }


def restore_snapshot(
    model: Classifier, method: Method, snapshot: Mapping[str, Any], without: Collection[str] = ()
) -> None:
    """Bit for bit; all but the running state of these names."""
    put_back(model.adapted, snapshot["adapted"])
    model.load_buffers(snapshot["buffers"])
    current, saved = method.running_state(), snapshot["running"]
    for name in current.keys() - saved.keys() - set(without):
        delattr(method, name)  # it began after the snapshot
    for name, value in saved.items():
        if name in without:
            continue
        setattr(method, name, revive(current.get(name), value, model.device))
