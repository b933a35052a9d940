"""A bounded bank of the most confident embeddings of each class, over the whole stream."""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import StateError
from .classifier import Classifier
from .losses import entropy, wide


class SupportBank:
    """The K lowest-entropy embeddings of each predicted class, and their sums.

    A class has K slots; a batch touches only the slots it takes over. The sums are kept in
    float64 and moved by what came and went, so a step costs the same at any length of stream and
    rounding does not pile up.
    """

    def __init__(self, classes: int, k: int, like: Tensor) -> None:
        """`like` is an embedding (or a batch of them): its size, dtype and device are used."""
        d = like.shape[-1]
        self.k = k
        # rows are replaced and never written to, so that snapshots can share them
        self.slots: list[Tensor | None] = [None] * (classes * k)
        self.entropy = torch.full((classes * k,), torch.inf, dtype=like.dtype, device=like.device)
        self.total = torch.zeros(classes, d, dtype=torch.float64, device=like.device)
        self.count = torch.zeros(classes, dtype=torch.int64, device=like.device)

    @torch.no_grad()
    def add(self, z: Tensor, label: Tensor, H: Tensor) -> None:
        """Offer (B, d) embeddings; a class keeps those of lowest entropy, the older on ties."""
        touched = label.unique()
        old = (touched[:, None] * self.k + torch.arange(self.k, device=z.device)).flatten()
        owner = torch.cat([touched.repeat_interleave(self.k), label])
        rank_by = torch.cat([self.entropy[old], H.to(self.entropy.dtype)])
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
        classes, rows, places = leave // self.k, z[come].to(self.entropy.dtype), leave.tolist()
        empty = torch.zeros_like(rows[0])
        went = [self.slots[place] for place in places]
        difference = z[come].double() - torch.stack([empty if w is None else w for w in went])
        self.total.index_add_(0, classes, difference)
        self.count.index_add_(0, classes, (~self.entropy[leave].isfinite()).long())
        self.entropy[leave] = rank_by[come + len(old)]
        for place, row in zip(places, rows.unbind(), strict=True):
            self.slots[place] = row.clone()  # not a view, which would hold the entire batch

    def sums(self) -> Tensor:
        """(C, d): the sum of each class' supports; 0 for a class without any."""
        return self.total.to(self.entropy.dtype)

    def means(self, fallback: Tensor) -> Tensor:
        """(C, d): the mean of each class' supports; the fallback's row for a class without any."""
        mean = (self.total / self.count.clamp(min=1)[:, None]).to(self.entropy.dtype)
        return mean.where((self.count > 0)[:, None], fallback)

    # ---- state ------------------------------------------------------------------------------

    def snapshot(self) -> Self:
        """An independent copy that shares the rows."""
        twin = copy.copy(self)
        twin.slots = self.slots.copy()
        twin.entropy, twin.total = self.entropy.clone(), self.total.clone()
        twin.count = self.count.clone()
        return twin

    def state_dict(self) -> dict[str, Any]:
        """Only the filled slots: early in a stream the bank is mostly empty."""
        filled = [(place, row) for place, row in enumerate(self.slots) if row is not None]
        rows = torch.tensor([place for place, _ in filled]).to(self.count)
        return {
            "rows": rows,
            "slots": torch.stack([row for _, row in filled]) if filled else self.sums()[:0],
            "entropy": self.entropy[rows],
            "total": self.total.clone(),
            "count": self.count.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["total"].shape != self.total.shape:
            raise StateError(
                f"the saved bank holds {tuple(state['total'].shape)} (classes, features), this one "
                f"{tuple(self.total.shape)}; load it into an adapter of the same model"
            )
        self.slots = [None] * len(self.slots)
        for place, row in zip(state["rows"].tolist(), state["slots"].to(self.entropy), strict=True):
            self.slots[place] = row.clone()
        self.entropy.fill_(torch.inf)
        self.entropy[state["rows"].to(self.entropy.device)] = state["entropy"].to(self.entropy)
        self.total.copy_(state["total"])
        self.count.copy_(state["count"])


@torch.no_grad()
def bank_of_head(model: Classifier, k: int) -> SupportBank:
    """A bank of unit vectors that begins with the head's own weight rows, one per class.

    They are labeled and ranked by the head's prediction for them and compete like any support.
    """
    weight = model.head_weight()
    bank = SupportBank(len(weight), k, like=weight)
    add_batch(bank, F.normalize(wide(weight)).to(weight), model.head(weight))
    return bank


def add_batch(bank: SupportBank, z: Tensor, logits: Tensor) -> None:
    """Offer embeddings with their predicted class and the entropy of that prediction."""
    sound = z.isfinite().all(1)  # an overflowed embedding would spoil its class for good
    bank.add(z, logits.argmax(1), entropy(logits).where(sound, torch.nan))
