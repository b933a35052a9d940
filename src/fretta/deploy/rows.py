"""One batch as rows of predictions.csv."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..models.labels import Labels
from .feed import Group
from .outputs import COLUMNS, TOP, label_cell, path_cell, row


@dataclass(frozen=True)
class Predicted:
    """The predictions of a batch, and of the source model on some or all of its images."""

    order: list[list[int]]  # the most likely classes of each image, best first
    confidence: list[list[float]]
    source: dict[int, int]  # position among the readable images -> class

    @property
    def classes(self) -> list[int]:
        return [order[0] for order in self.order]


def predicted(logits: Tensor, source: dict[int, int]) -> Predicted:
    p = logits.softmax(1)
    # a stable sort: equal values keep the order of the classes
    best = torch.sort(p, dim=1, descending=True, stable=True)
    top = min(TOP, p.shape[1])
    return Predicted(best.indices[:, :top].tolist(), best.values[:, :top].tolist(), source)


HEADER = row(COLUMNS)


def rows_of(group: Group, seen: Predicted | None, labels: Labels) -> bytes:
    """A row for every file, in order; those that could not be read say why."""
    place = {position: i for i, position in enumerate(group.kept)}
    names = [label_cell(name) for name in labels.names]
    lines = []
    for position, name in enumerate(group.names):
        cells = [path_cell(name)]
        if seen is not None and position in place:
            i = place[position]
            order, confidence = seen.order[i], seen.confidence[i]
            ranked = [
                c for k, p in zip(order, confidence, strict=True) for c in (names[k], f"{p:.6f}")
            ]
            first = [ranked[0], str(order[0]), ranked[1]]
            rest = ranked[2:] + [""] * (2 * TOP - len(ranked))
            before = names[seen.source[i]] if i in seen.source else ""
            cells += [*first, *rest, before, group.notes.get(position, "")]
        else:
            note = f"unreadable: {group.unreadable.get(position, '')}"
            cells += [""] * (len(COLUMNS) - 2) + [note]
        lines.append(row(cells))
    return b"".join(lines)
