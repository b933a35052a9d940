"""Evidence about the adapted model: beside its own past, and beside the source model.

What tells harm from help without labels? Measured over healthy and harmful streams (docs/guard.md):

    entropy    Adaptation that helps makes predictions more certain than the source model's, or
               leaves them as certain. Batch statistics of two images, or of one class, make them
               much less certain.
    marginal   A collapsed model predicts few classes where the source model, on the same images,
               predicts more. Few classes alone mean nothing: the stream may bring one at a time,
               and then the source model predicts few as well.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..parts.losses import entropy
from .config import Guard
from .measure import entropy_of


@dataclass(frozen=True)
class Trouble:
    kind: str  # "not finite", "collapse", "entropy" or "drift"
    reason: str


class Recent:
    """Mean rows over the last images, in whole batches."""

    def __init__(self, images: int) -> None:
        self.images = images
        self.rows: deque[tuple[int, Tensor]] = deque()
        self.n = 0

    def add(self, n: int, means: Tensor) -> None:
        self.rows.append((n, means * n))
        self.n += n
        while self.n - self.rows[0][0] >= self.images:
            self.n -= self.rows.popleft()[0]

    def mean(self) -> Tensor:
        return torch.stack([row for _, row in self.rows]).sum(0) / max(self.n, 1)

    def clear(self) -> None:
        self.rows.clear()
        self.n = 0

    def state(self) -> list[Any]:
        return [[n, row.clone()] for n, row in self.rows]

    def load(self, state: list[Any]) -> None:
        self.rows = deque((n, row.cpu().clone()) for n, row in state)
        self.n = sum(n for n, _ in self.rows)


@torch.no_grad()
def pair_row(adapted: Tensor, source: Tensor) -> Tensor:
    """[H_A, H_S, agreement, mean prediction of A (C), of S (C)] on the CPU: one transfer."""
    a, s = adapted.detach().float(), source.detach().float()
    agree = (a.argmax(1) == s.argmax(1)).float().mean()
    head = torch.stack([entropy(a).mean(), entropy(s).mean(), agree])
    return torch.cat([head, a.softmax(1).mean(0), s.softmax(1).mean(0)]).cpu().double()


@dataclass(frozen=True)
class Comparison:
    """The adapted and the source model on the same images. Entropies in units of ln C."""

    images: int
    entropy: float
    source_entropy: float
    changed: float
    marginal: float
    source_marginal: float

    @classmethod
    def of(cls, images: int, row: Tensor) -> Comparison:
        classes = (len(row) - 3) // 2
        unit = math.log(classes)
        h_a, h_s, agree = row[:3].tolist()
        m_a, m_s = entropy_of(row[3 : 3 + classes]), entropy_of(row[3 + classes :])
        return cls(images, h_a / unit, h_s / unit, 1 - agree, m_a / unit, m_s / unit)


def judge(
    seen: Comparison,
    guard: Guard,
    own_past: float | None = None,
    source_past: float | None = None,
    strict: bool = False,
) -> Trouble | None:
    """Is the adapted model worse than the source model? `strict` asks for more, to come
    back from trouble: predictions at least as certain as the source model's.

    own_past, source_past   marginal entropies of earlier, accepted predictions, in ln C
    """
    if not math.isfinite(seen.entropy):
        return Trouble("not finite", "predictions are not finite")
    scale = 0.5 if strict else 1.0
    gap = seen.entropy - seen.source_entropy
    # A source model that sees one class in everything is as likely lost as the stream is of one
    # class; its certainty then counts for less.
    lost = seen.source_marginal < 2 * guard.collapse_gap
    floor = guard.entropy_floor * (2.5 if lost else 1.0)
    if strict:
        floor = 0.75 * floor if lost else 0.0
    if gap > (0.0 if strict else guard.entropy_gap) and seen.entropy > floor:
        return Trouble(
            "entropy",
            f"predictions are much less certain than the source model's: entropy"
            f" {seen.entropy:.2f} against {seen.source_entropy:.2f} of ln C on {seen.images}"
            " images",
        )
    if seen.images < 16:  # too few to speak of a marginal
        return None
    fewer = seen.source_marginal - seen.marginal
    if fewer > scale * guard.collapse_gap:
        return Trouble(
            "collapse",
            f"predictions collapse to few classes: marginal entropy {seen.marginal:.2f} against"
            f" {seen.source_marginal:.2f} of ln C of the source model on {seen.images} images",
        )
    if own_past is not None and source_past is not None:
        drop = own_past - seen.marginal
        explained = max(0.0, source_past - seen.source_marginal)
        if drop > scale * guard.collapse_gap + explained:
            return Trouble(
                "collapse",
                f"predictions collapse to few classes: marginal entropy {seen.marginal:.2f} of"
                f" ln C, {own_past:.2f} before, and the source model sees no such change",
            )
    return None
