"""One model in memory, however many adapters there are of it, and how much each of them adds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..adapter import Adapter


def share_constants(adapter: Adapter, pool: dict[str, Any]) -> None:
    """Let what is equal in all adapters of a model and method be one: the first one's, in `pool`.

    An adapter has these when it is ready. The frozen weights are shared by Compute(share=True).
    """
    statistics, supervisor = adapter.model.statistics, adapter._supervisor
    if statistics is not None:
        found = statistics.all, statistics.each
        statistics.all, statistics.each = pool.setdefault("channels", found)
    if supervisor is not None:
        supervisor.origin = pool.setdefault("origin", supervisor.origin)


def storages(found: Iterable[Tensor]) -> dict[int, int]:
    """Address -> bytes of the memory behind tensors."""
    memory = (tensor.untyped_storage() for tensor in found)
    return {storage.data_ptr(): storage.nbytes() for storage in memory if storage.nbytes()}


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Every tensor that can be reached through attributes and containers; arrays as tensors."""
    seen: set[int] = set()
    queue = [value]
    while queue:
        item = queue.pop()
        if id(item) in seen or isinstance(item, type | ModuleType):
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            yield item
            queue.append(item.grad if item.is_leaf else None)
        elif isinstance(item, np.ndarray):
            yield torch.from_numpy(item)
        elif isinstance(item, dict):
            queue += item.values()
        elif isinstance(item, list | tuple | set | frozenset):
            queue += item
        elif hasattr(item, "__self__"):  # a bound method
            queue.append(item.__self__)
        elif hasattr(item, "__dict__"):
            queue += vars(item).values()


def own_bytes(value: Any, shared: dict[int, int]) -> int:
    """Bytes of the tensors of an object that are not in `shared`."""
    own = storages(tensors_of(value))
    return sum(size for address, size in own.items() if address not in shared)


def digest_of(net: nn.Module) -> str:
    """A hash of all parameters and buffers: what a checkpoint's model must be."""
    content = hashlib.blake2b(digest_size=16)
    for name, tensor in net.state_dict().items():
        content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        content.update(flat.view(torch.uint8).numpy().tobytes() if len(flat) else b"")
    return content.hexdigest()
