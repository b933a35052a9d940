"""One batch into the tally."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .feed import Group
from .rows import Predicted
from .tally import SHOWN, Tally, count


def count_batch(
    t: Tally, group: Group, seen: Predicted | None, folders: Mapping[str, int], last: int
) -> None:
    """`folders` says which class a folder is; `last` images are remembered."""
    t.link(group.names)
    t.batches += seen is not None
    t.unreadable += len(group.unreadable)
    t.noted += len(group.notes)
    for position, why in sorted(group.unreadable.items()):
        if len(t.first_unreadable) < SHOWN:
            t.first_unreadable.append([group.names[position], why])
    if seen is None:
        return
    names, classes = [group.names[i] for i in group.kept], seen.classes
    truth = [folders.get(os.path.dirname(name), -1) for name in names]
    count(t.adapted, classes)
    t.confidence += sum(row[0] for row in seen.confidence)
    for i, before in seen.source.items():
        t.compared += 1
        t.changed += classes[i] != before
        if truth[i] >= 0:
            count_pair(t, truth[i], before == truth[i], classes[i] == truth[i])
    count(t.source, seen.source.values())
    t.labeled += sum(number >= 0 for number in truth)
    t.right += sum(a == b for a, b in zip(classes, truth, strict=True))
    t.remember(names, classes, truth, last)


def count_pair(t: Tally, label: int, before: bool, after: bool) -> None:
    """A labeled image: was the source model right, is the adapted one?"""
    t.source_labeled += 1
    t.source_right += before
    t.gained += after and not before
    t.lost += before and not after
    mine = t.by_class.setdefault(label, [0, 0, 0])
    for i, one in enumerate((True, before, after)):
        mine[i] += one
