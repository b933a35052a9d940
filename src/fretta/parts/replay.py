"""A replay buffer of generated inputs for energy-based methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass
class _Rows:
    samples: Tensor  # (size, *input)
    stored: Tensor  # (size,): which rows hold a sample
    low: Tensor  # the range of the first batch, per channel
    high: Tensor


class ReplayBuffer:
    """Rows begin as uniform noise in the range of the first batch and are then overwritten.

    A row nobody has stored to is noise however it is drawn, so it is drawn when it is first
    needed; the memory behind it is reserved but not used.
    """

    def __init__(self, size: int, reinit: float) -> None:
        self.size, self.reinit = size, reinit
        self._rows: _Rows | None = None

    def draw(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """(row numbers, samples) for a batch like x; a share `reinit` of them is fresh noise."""
        rows = self._rows
        if rows is not None and rows.samples.device != x.device:  # a state loaded from elsewhere
            moved = (t.to(x.device) for t in (rows.samples, rows.stored, rows.low, rows.high))
            rows = self._rows = _Rows(*moved)
        if rows is None or rows.samples.shape[1:] != x.shape[1:]:
            axes = [axis for axis in range(x.dim()) if axis != 1]
            low, high = x.amin(axes, keepdim=True), x.amax(axes, keepdim=True)
            rows = self._rows = self._allocate(x, low, high)
        index = torch.randint(self.size, (len(x),), generator=generator, device=x.device)
        noise = torch.empty_like(x, memory_format=torch.contiguous_format)
        noise = rows.low + (rows.high - rows.low) * noise.uniform_(generator=generator)
        fresh = torch.rand(len(x), generator=generator, device=x.device) < self.reinit
        old = (rows.stored[index] & ~fresh).view(-1, *[1] * (x.dim() - 1))
        return index, torch.where(old, rows.samples[index], noise)

    def store(self, index: Tensor, samples: Tensor) -> None:
        """Keep these samples in the rows they were drawn from."""
        if self._rows is not None:
            self._rows.samples[index] = samples.to(self._rows.samples.dtype)
            self._rows.stored[index] = True

    def _allocate(self, like: Tensor, low: Tensor, high: Tensor) -> _Rows:
        samples = like.new_empty((self.size, *like.shape[1:]))
        return _Rows(
            samples, torch.zeros(self.size, dtype=torch.bool, device=like.device), low, high
        )

    # ---- state ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Only the rows that hold a sample."""
        if self._rows is None:
            return {"index": None}
        index = self._rows.stored.nonzero().flatten()
        low, high = self._rows.low.clone(), self._rows.high.clone()
        return {"index": index, "samples": self._rows.samples[index], "low": low, "high": high}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._rows = None
        if state["index"] is not None:
            samples = state["samples"]
            self._rows = self._allocate(samples, state["low"].clone(), state["high"].clone())
            self.store(state["index"], samples)
