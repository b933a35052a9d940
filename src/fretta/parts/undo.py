"""One step back: what a method and its model were at a moment, put back bit for bit.

A moment is plain data (tensors, numbers, lists), so it can be saved with a state. Large stores
that change a few rows per batch (support bank, replay buffer) are not copied: they keep a journal
of the rows they overwrite. They have

    mark()       begin a new entry of the journal; its number
    back_to(n)   undo the entries n, n + 1, ... , newest first
    forget(n)    entries before n will not be asked for
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .norm import is_norm
from .snapshot import capture, revive


@runtime_checkable
class Journaled(Protocol):
    """A store that undoes its own writes."""

    def mark(self) -> int: ...
    def back_to(self, number: int) -> None: ...
    def forget(self, number: int) -> None: ...
    def journal_state(self) -> Any: ...
    def load_journal(self, state: Any) -> None: ...


def flat(tensors: Iterable[Tensor]) -> Tensor | None:
    """All values in one new tensor; None without any. Mixed dtypes are widened, exactly."""
    pieces = [tensor.detach().reshape(-1) for tensor in tensors]
    return torch.cat(pieces) if pieces else None


@torch.no_grad()
def unflatten_into(tensors: Iterable[Tensor], values: Tensor | None) -> None:
    """The inverse of `flat`, in place."""
    targets = list(tensors)
    if values is not None:
        pieces = values.to(targets[0].device).split([t.numel() for t in targets])
        for target, piece in zip(targets, pieces, strict=True):
            target.copy_(piece.view_as(target))


class Undo:
    """Takes moments of one model and the running state of one method, and goes back to them."""

    def __init__(self, net: nn.Module, parameters: list[Tensor]) -> None:
        self.parameters = parameters
        # by place, not by tensor: a forward may replace a buffer instead of writing to it
        self.places = [
            (module, key)
            for module in net.modules()
            if not is_norm(module)
            for key in module._buffers
        ]

    def take(self, running: Mapping[str, Any]) -> dict[str, Any]:
        """A moment. `running` are the attributes of the method that are not fields."""
        values = [module._buffers[key] for module, key in self.places]
        return {
            "adapted": flat(self.parameters),
            "buffers": [None if v is None else v.detach().clone() for v in values],
            "running": {name: _content(value) for name, value in running.items()},
        }

    def back(self, method: Any, running: Mapping[str, Any], moment: Mapping[str, Any]) -> None:
        """Put a moment back. `running` holds the objects as they were when it was taken."""
        unflatten_into(self.parameters, moment["adapted"])
        for (module, key), value in zip(self.places, moment["buffers"], strict=True):
            current = module._buffers[key]
            if value is None or current is None or current.shape != value.shape:
                module._buffers[key] = None if value is None else value.clone()
            else:
                current.copy_(value)
        device = self.parameters[0].device if self.parameters else torch.device("cpu")
        fields = set(method.field_names())
        for name in [n for n in vars(method) if n not in fields and n not in moment["running"]]:
            delattr(method, name)  # it began after the moment
        for name, content in moment["running"].items():
            setattr(method, name, _put_back(running.get(name), content, device))


def journals(running: Mapping[str, Any]) -> dict[str, Journaled]:
    return {name: value for name, value in running.items() if isinstance(value, Journaled)}


def _content(value: Any) -> Any:
    if isinstance(value, Journaled):
        return value.mark()
    if isinstance(value, Optimizer):
        return _optimizer_content(value)
    content = capture(value)
    # state_dict() may hand out what the object goes on writing to
    return copy.deepcopy(content) if hasattr(value, "state_dict") else content


def _put_back(value: Any, content: Any, device: torch.device) -> Any:
    if isinstance(value, Journaled):
        value.back_to(content)
        return value
    if isinstance(value, Optimizer):
        _fill_optimizer(value, content)
        return value
    return revive(value, content, device)


def _optimizer_content(optimizer: Optimizer) -> dict[str, Any]:
    """State of each parameter and options of each group; tensors packed by device and dtype."""
    packs: dict[tuple[Any, Any], list[Tensor]] = {}
    layout: list[list[tuple[str, Any]]] = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            entry: list[tuple[str, Any]] = []
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    packs.setdefault((value.device, value.dtype), []).append(value)
                    entry.append((key, [str(value.device), str(value.dtype), list(value.shape)]))
                else:
                    entry.append((key, value))
            layout.append(entry)
    names = [[str(device), str(dtype)] for device, dtype in packs]
    options = [
        {k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups
    ]
    return {
        "packs": [[*name, flat(t)] for name, t in zip(names, packs.values(), strict=True)],
        "layout": layout,
        "options": copy.deepcopy(options),
    }


def _fill_optimizer(optimizer: Optimizer, content: Mapping[str, Any]) -> None:
    packs = {(device, dtype): values for device, dtype, values in content["packs"]}
    position = dict.fromkeys(packs, 0)
    entries = iter(content["layout"])
    optimizer.state.clear()
    for group, options in zip(optimizer.param_groups, content["options"], strict=True):
        group.update(copy.deepcopy(options))
        for parameter in group["params"]:
            for key, value in next(entries):
                if isinstance(value, list) and len(value) == 3 and isinstance(value[2], list):
                    pack, shape = (value[0], value[1]), value[2]
                    start = position[pack]
                    stop = start + int(torch.Size(shape).numel())
                    position[pack] = stop
                    value = packs[pack][start:stop].clone().view(shape)
                optimizer.state[parameter][key] = value
