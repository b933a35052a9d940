"""How far adapted predictions can be trusted beside the source model's, without labels.

Statistics that fit make predictions more certain than the source model's on the same images;
statistics of too few images, or of one class, make them less certain. The certainty of the source
model counts for nothing where it sees few classes and the adapted model sees all of them evenly:
then the source is sure and wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .losses import entropy

SURE = 0.98  # a weight above it is 1, one below 1 - SURE is 0


class Gate:
    """The weight of the adapted predictions in the mean with the source model's, in [0, 1].

    clock     images over which both are compared; fewer after a change of domain
    width     difference of mean entropies, in ln C, that moves the weight from 1/2 to 0.73
    sample    share of the images that the source model sees while the gate is open
    most_lost entropy of the classes that the adapted model may lose, in ln C; known after
              `enough` images
    """

    clock = 128.0
    width = 0.02
    sample = 0.25
    few = 96.0
    long = 512.0
    most_lost = 0.4
    enough = 64.0

    PLAIN = ("images", "weight", "usual", "lost")

    def __init__(self, mixes: bool = True) -> None:
        self.mixes = mixes  # or both are compared and the adapted predictions stand
        self.row: Tensor | None = None  # [H_A, H_S, mean prediction of A, of S]
        self.images = 0.0  # behind it
        self.weight = 0.5 if mixes else 1.0
        self.usual = 0.0  # gain of earlier domains
        self.lost = 0.0  # entropy of the classes that A does not see and S does, in ln C

    @property
    def open(self) -> bool:
        return self.weight >= SURE

    @property
    def closed(self) -> bool:
        return self.weight <= 1 - SURE

    @property
    def collapsed(self) -> bool:
        """Whether the adapted model has lost classes that the source model sees."""
        return self.images >= self.enough and self.lost > self.most_lost

    @property
    def source_share(self) -> float:
        """Weight of the source model in `blend`; 0 before anything was compared."""
        if self.row is None or self.open:
            return 0.0
        return 1.0 if self.closed else 1 - self.weight

    def places(self, n: int) -> slice:
        """Which images of a batch the source model sees."""
        return slice(None, None, max(1, min(round(1 / self.sample), n // 2)) if self.open else 1)

    def add(self, adapted: Tensor, source: Tensor, changed: float = 0.0) -> None:
        """Logits of both for the same images; `changed`: how far the domain changed, in [0, 1].

        Rows that are not finite are left out. Where no other is left, the source model predicts.
        """
        a, s = adapted.detach().float(), source.detach().float()
        n = len(a)
        means = [entropy(a).mean(0, True), entropy(s).mean(0, True)]
        row = torch.cat([*means, a.softmax(1).mean(0), s.softmax(1).mean(0)])
        images = self.images * math.exp(-n / self.clock) * (1 - changed) + n
        row = row if self.row is None else torch.lerp(self.row, row, n / images)
        marginals = torch.special.entr(row[2:].view(2, -1)).sum(1)
        unit = math.log(max(a.shape[1], 2))
        numbers = (torch.cat([row[:2], marginals]) / unit).tolist()  # one transfer
        if not all(map(math.isfinite, numbers)):  # in the average they would stay for good
            sound = torch.isfinite(a.logsumexp(1) + s.logsumexp(1))
            if 0 < int(sound.sum()) < n:
                self.add(a[sound], s[sound], changed)
            elif self.mixes:
                self.weight = 0.0
            return
        self.images, self.row = images, row
        own, source_own, marginal, source_marginal = numbers
        self.lost = source_marginal - marginal
        even = min(1.0, max(0.0, (marginal - 0.93) / 0.04))  # all classes, evenly
        few = min(1.0, max(0.0, (0.55 - source_marginal) / 0.1))  # the source sees few
        gain = source_own - own - even * few * self.lost
        self.usual += (1 - math.exp(-n / self.long)) * (gain - self.usual)
        gain += self.few / (self.few + self.images) * (self.usual - gain)
        if self.mixes:
            self.weight = 1 / (1 + math.exp(-max(-50.0, min(50.0, gain / self.width))))

    def blend(self, adapted: Tensor, source: Tensor) -> Tensor:
        """Logits of the weighted mean of both predictions."""
        a, s = adapted.log_softmax(1), source.log_softmax(1)
        if not 0 < self.weight < 1:
            return adapted if self.weight else source
        return torch.logaddexp(a + math.log(self.weight), s + math.log(1 - self.weight))

    def state_dict(self) -> dict[str, Any]:
        return {"row": self.row, **{name: getattr(self, name) for name in self.PLAIN}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.row = state["row"]
        for name in self.PLAIN:
            setattr(self, name, state[name])
