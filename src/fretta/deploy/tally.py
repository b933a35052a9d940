"""What a run counts on its way, small enough to go into every checkpoint."""

from __future__ import annotations

import hashlib
import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

SPREAD = 256  # images, spread over the whole run, on which the exported model is checked
SHOWN = 50  # unreadable files that are listed by name


@dataclass
class Tally:
    """Counts of images, predictions and hits; and a few images to come back to at the end."""

    files: int = 0  # names taken from the list, readable or not
    images: int = 0
    batches: int = 0
    unreadable: int = 0
    noted: int = 0  # images with a remark
    adapted: dict[int, int] = field(default_factory=dict)  # class -> predictions
    confidence: float = 0.0  # sum
    compared: int = 0  # images the source model saw too
    changed: int = 0  # of these, predicted otherwise
    source: dict[int, int] = field(default_factory=dict)
    labeled: int = 0
    right: int = 0
    source_labeled: int = 0
    source_right: int = 0
    gained: int = 0  # labeled, wrong by the source model and right when adapted
    lost: int = 0  # the other way round
    # class -> [images with this label that both models saw, right by source, right when adapted]
    by_class: dict[int, list[int]] = field(default_factory=dict)
    first_unreadable: list[list[str]] = field(default_factory=list)  # [name, why]
    spread: list[list[Any]] = field(default_factory=list)  # [-rank, name, class, truth]: a heap
    recent: list[str] = field(default_factory=list)
    chain: str = ""  # a hash over all names so far: whether a resumed list begins the same

    def link(self, names: Iterable[str]) -> None:
        """Take names into the chain."""
        for name in names:
            content = self.chain.encode() + name.encode("utf-8", "surrogateescape")
            self.chain = hashlib.sha256(content).hexdigest()
            self.files += 1

    def remember(self, names: list[str], classes: list[int], truth: list[int], last: int) -> None:
        """Keep the latest images, and some of all: those whose names hash lowest."""
        for name, number, true in zip(names, classes, truth, strict=True):
            content = f"{self.images}".encode() + name.encode("utf-8", "surrogateescape")
            rank = int.from_bytes(hashlib.blake2b(content, digest_size=6).digest(), "big")
            entry = [-rank, name, number, true]
            if len(self.spread) < SPREAD:
                heapq.heappush(self.spread, entry)
            else:
                heapq.heappushpop(self.spread, entry)
            self.images += 1
        self.recent = list(deque([*self.recent, *names], maxlen=last))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Tally:
        tally = cls(**values)
        for name in ("adapted", "source", "by_class"):  # JSON has no numbers as keys
            setattr(tally, name, {int(k): v for k, v in getattr(tally, name).items()})
        return tally


def count(into: dict[int, int], classes: Iterable[int]) -> None:
    for number in classes:
        into[number] = into.get(number, 0) + 1
