"""A replay buffer of generated inputs for energy-based methods."""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
from torch import Tensor


class ReplayBuffer:
    """Rows begin as uniform noise in the range of the first batch and are then replaced.

    A row nobody has stored to is noise however it is drawn, so it is drawn when it is needed.
    """

    def __init__(self, size: int, reinit: float) -> None:
        self.size, self.reinit = size, reinit
        # samples are replaced and never written to, so that snapshots can share them
        self.rows: list[Tensor | None] = [None] * size
        self.shape: list[int] | None = None  # of a sample
        self.range: list[Tensor] = []  # lowest and highest value of the first batch, per channel

    def draw(self, x: Tensor, generator: torch.Generator) -> tuple[list[int], Tensor]:
        """(row numbers, samples) for a batch like x; a share `reinit` of them is fresh noise."""
        if self.shape != list(x.shape[1:]):
            self.shape, self.rows = list(x.shape[1:]), [None] * self.size
            axes = [axis for axis in range(x.dim()) if axis != 1]
            self.range = [x.amin(axes, keepdim=True), x.amax(axes, keepdim=True)]
        low, high = (bound.to(x) for bound in self.range)
        index = torch.randint(self.size, (len(x),), generator=generator, device=x.device)
        noise = torch.empty_like(x, memory_format=torch.contiguous_format)
        samples = low + (high - low) * noise.uniform_(generator=generator)
        fresh = torch.rand(len(x), generator=generator, device=x.device) < self.reinit
        numbers = index.tolist()
        for place, (number, is_fresh) in enumerate(zip(numbers, fresh.tolist(), strict=True)):
            row = self.rows[number]
            if row is not None and not is_fresh:
                samples[place] = row
        return numbers, samples

    def store(self, numbers: list[int], samples: Tensor) -> None:
        """Keep these samples in the rows they were drawn from; of a row drawn twice, the last."""
        for number, sample in zip(numbers, samples, strict=True):
            self.rows[number] = sample.clone(memory_format=torch.contiguous_format)

    # ---- state ------------------------------------------------------------------------------

    def snapshot(self) -> Self:
        """An independent copy that shares the samples."""
        twin = copy.copy(self)
        twin.rows = self.rows.copy()
        return twin

    def state_dict(self) -> dict[str, Any]:
        """Only the rows that hold a sample."""
        stored = [(number, row) for number, row in enumerate(self.rows) if row is not None]
        return {
            "index": [number for number, _ in stored],
            "samples": torch.stack([row for _, row in stored]) if stored else None,
            "shape": self.shape,
            "range": list(self.range),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows = [None] * self.size
        if state["samples"] is not None:
            self.store(state["index"], state["samples"])
        self.shape, self.range = state["shape"], list(state["range"])
