"""A replay buffer of generated inputs for energy-based methods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..errors import StateError


@dataclass
class _Rows:
    samples: Tensor  # (size, *input)
    stored: Tensor  # (size,): which rows hold a sample
    low: Tensor  # the range of the first batch, per channel
    high: Tensor


@dataclass
class _Entry:
    """What one batch wrote over, and the rows it began with."""

    held: _Rows | None
    writes: list[tuple[Tensor, Tensor | None, Tensor | None]] = field(default_factory=list)


class ReplayBuffer:
    """Rows begin as uniform noise in the range of the first batch and are then overwritten.

    A row nobody has stored to is noise however it is drawn, so it is drawn when it is first
    needed; the memory behind it is reserved but not used.
    """

    def __init__(self, size: int, reinit: float) -> None:
        self.size, self.reinit = size, reinit
        self._rows: _Rows | None = None
        self.journal: list[_Entry] = []  # what was overwritten; see parts/undo.py
        self.marks = 0

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
        """Keep these samples in the rows they were drawn from.

        A batch may draw a row more than once. Its last sample stays: whichever thread writes
        last then writes the same values.
        """
        if self._rows is not None:
            place = torch.arange(len(index), device=index.device)
            samples = samples[((index[:, None] == index) * place).amax(1)]
            if self.journal:
                old = (index, self._rows.samples[index], self._rows.stored[index])
                self.journal[-1].writes.append(old)
            self._rows.samples[index] = samples.to(self._rows.samples.dtype)
            self._rows.stored[index] = True

    def _allocate(self, like: Tensor, low: Tensor, high: Tensor) -> _Rows:
        samples = like.new_empty((self.size, *like.shape[1:]))
        return _Rows(
            samples, torch.zeros(self.size, dtype=torch.bool, device=like.device), low, high
        )

    # ---- one step back -----------------------------------------------------------------------

    def mark(self) -> int:
        # Images are large: only the newest entry keeps them. Going back further leaves the rows
        # written since without a sample, and what is drawn there next is fresh noise.
        if self.journal:
            last = self.journal[-1]
            last.writes = [(index, None, None) for index, _, _ in last.writes]
        self.journal.append(_Entry(self._rows))
        self.marks += 1
        return self.marks - 1

    def back_to(self, number: int) -> None:
        if self.marks - number > len(self.journal):
            raise StateError("the replay buffer was asked to go back further than it remembers")
        while self.marks > number:
            entry = self.journal.pop()
            self._rows = entry.held
            for index, samples, stored in reversed(entry.writes):
                if self._rows is None:
                    break
                if samples is None or stored is None:
                    self._rows.stored[index] = False
                else:
                    self._rows.samples[index], self._rows.stored[index] = samples, stored
            self.marks -= 1

    def forget(self, number: int) -> None:
        del self.journal[: max(0, len(self.journal) - max(0, self.marks - number))]

    def journal_state(self) -> dict[str, Any]:
        writes = [[index for index, _, _ in entry.writes] for entry in self.journal]
        return {"writes": writes, "marks": self.marks}

    def load_journal(self, state: dict[str, Any]) -> None:
        entries = [[(index, None, None) for index in writes] for writes in state["writes"]]
        self.journal = [_Entry(self._rows, list(writes)) for writes in entries]
        self.marks = state["marks"]

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
        self.journal.clear()
        if state["index"] is not None:
            samples = state["samples"]
            self._rows = self._allocate(samples, state["low"].clone(), state["high"].clone())
            self.store(state["index"], samples)
