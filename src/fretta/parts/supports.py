"""A bounded bank of the most confident embeddings of each class, over the whole stream."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import StateError


class SupportBank:
    """The K lowest-entropy embeddings of each predicted class, and their sums.

    C·K slots are allocated once; a batch touches only the slots it takes over. The sums are kept
    in float64 and moved by what came and went, so a step costs the same at any length of stream
    and rounding does not pile up.
    """

    def __init__(self, classes: int, k: int, like: Tensor) -> None:
        """`like` is an embedding (or a batch of them): its size, dtype and device are used."""
        d = like.shape[-1]
        self.k = k
        # empty, not zeros: pages nobody has written to cost no memory
        self.slots = torch.empty(classes * k, d, dtype=like.dtype, device=like.device)
        self.entropy = torch.full((classes * k,), torch.inf, dtype=like.dtype, device=like.device)
        self.total = torch.zeros(classes, d, dtype=torch.float64, device=like.device)
        self.count = torch.zeros(classes, dtype=torch.int64, device=like.device)
        self.journal: list[list[dict[str, Tensor]]] = []  # what was overwritten; see parts/undo.py
        self.marks = 0

    @torch.no_grad()
    def add(self, z: Tensor, label: Tensor, entropy: Tensor) -> None:
        """Offer (B, d) embeddings; each class keeps its K lowest entropies, older first on ties."""
        touched = label.unique()
        old = (touched[:, None] * self.k + torch.arange(self.k, device=z.device)).flatten()
        owner = torch.cat([touched.repeat_interleave(self.k), label])
        rank_by = torch.cat([self.entropy[old], entropy.to(self.entropy.dtype)])
        # One sort over (class, entropy): a stable sort by entropy, then a stable sort by class.
        order = rank_by.argsort(stable=True)
        order = order[owner[order].argsort(stable=True)]
        sizes = torch.bincount(torch.searchsorted(touched, owner), minlength=len(touched))
        starts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
        kept = torch.arange(len(order), device=z.device) - starts < self.k
        newcomer = order >= len(old)
        # Per class as many newcomers stay as residents (or empty slots) leave: pair them in order.
        come = order[kept & newcomer] - len(old)
        leave = old[order[~kept & ~newcomer]]
        if len(come) == 0:
            return
        classes = leave // self.k
        self._note(leave, touched)
        filled = self.entropy[leave].isfinite()
        went = self.slots[leave].double().where(filled[:, None], 0)
        self.total.index_add_(0, classes, z[come].double() - went)
        self.count.index_add_(0, classes, (~filled).long())
        self.slots[leave] = z[come].to(self.slots.dtype)
        self.entropy[leave] = rank_by[come + len(old)]

    def sums(self) -> Tensor:
        """(C, d): the sum of each class' supports; 0 for a class without any."""
        return self.total.to(self.slots.dtype)

    def means(self, fallback: Tensor) -> Tensor:
        """(C, d): the mean of each class' supports; the fallback's row for a class without any."""
        mean = (self.total / self.count.clamp(min=1)[:, None]).to(self.slots.dtype)
        return mean.where((self.count > 0)[:, None], fallback)

    # ---- one step back -----------------------------------------------------------------------

    def mark(self) -> int:
        self.journal.append([])
        self.marks += 1
        return self.marks - 1

    def _note(self, rows: Tensor, classes: Tensor) -> None:
        if self.journal:
            entropy = self.entropy[rows]
            slots = self.slots[rows].where(entropy.isfinite()[:, None], 0)  # else never written
            self.journal[-1].append(
                {
                    "rows": rows,
                    "slots": slots,
                    "entropy": entropy,
                    "classes": classes,
                    "total": self.total[classes],
                    "count": self.count[classes],
                }
            )

    def back_to(self, number: int) -> None:
        if self.marks - number > len(self.journal):
            raise StateError("the bank was asked to go back further than it remembers")
        while self.marks > number:
            for old in reversed(self.journal.pop()):
                self.slots[old["rows"]], self.entropy[old["rows"]] = old["slots"], old["entropy"]
                self.total[old["classes"]] = old["total"]
                self.count[old["classes"]] = old["count"]
            self.marks -= 1

    def forget(self, number: int) -> None:
        del self.journal[: max(0, len(self.journal) - max(0, self.marks - number))]

    def journal_state(self) -> dict[str, Any]:
        return {"journal": [list(entry) for entry in self.journal], "marks": self.marks}

    def load_journal(self, state: dict[str, Any]) -> None:
        device = self.slots.device
        self.journal = [
            [{k: v.to(device) for k, v in old.items()} for old in entry]
            for entry in state["journal"]
        ]
        self.marks = state["marks"]

    # ---- state ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Only the filled slots: early in a stream the bank is mostly empty."""
        rows = self.entropy.isfinite().nonzero().flatten()
        return {
            "rows": rows,
            "slots": self.slots[rows].clone(),
            "entropy": self.entropy[rows].clone(),
            "total": self.total.clone(),
            "count": self.count.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["total"].shape != self.total.shape:
            raise StateError(
                f"the saved bank holds {tuple(state['total'].shape)} (classes, features), this one "
                f"{tuple(self.total.shape)}; load it into an adapter of the same model"
            )
        device = self.slots.device
        self.journal.clear()
        rows = state["rows"].to(device)
        self.entropy.fill_(torch.inf)
        self.entropy[rows] = state["entropy"].to(self.entropy)
        self.slots[rows] = state["slots"].to(self.slots)
        self.total.copy_(state["total"])
        self.count.copy_(state["count"])
