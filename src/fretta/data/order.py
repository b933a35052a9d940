"""Orders of a stream: pure functions from labels, names and a seed to indices.

An order is one arrangement of the domains and any number of modifiers, joined by "+":

    arrangements  continual     one domain after the other, no reset (the default)
                  independent   the same, with a reset at the start of every domain
                  mixed         all domains shuffled into each other
                  gradual       per corruption, severity up and down again: 1 2 3 4 5 4 3 2 1
    modifiers     correlated    neighbors tend to share their class (Dirichlet)
                  sorted        class after class, the classes in random order
                  long-tailed   class c keeps int(n·IF^(−c/(C−1))) of its images
                  dominant      one class makes up a share of the images, the others are even
                  single-sample batches of one

"mixed+correlated+single-sample" is a valid order. Random numbers come from RandomState, whose
sequence numpy guarantees not to change, so a seed means the same order with every version.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .domain import check_integer

Indices = NDArray[np.int64]

ARRANGEMENTS = ("continual", "independent", "mixed", "gradual")
MODIFIERS = ("correlated", "sorted", "long-tailed", "dominant", "single-sample")
DEFAULT_CONCENTRATION = 0.1
DEFAULT_IMBALANCE = 10.0
DEFAULT_SHARE = 0.8


@dataclass(frozen=True, eq=False)
class Schedule:
    """Which images come in which order, and where batches begin. Plain arrays."""

    domain: Indices  # number of each image's domain
    index: Indices  # and its place in that domain
    edges: Indices  # batch b is images edges[b] to edges[b + 1]
    resets: NDArray[np.bool_]  # the adapter is reset before batch b

    def __len__(self) -> int:
        """Number of batches."""
        return len(self.resets)

    def batch(self, number: int) -> tuple[Indices, Indices]:
        """Domain numbers and indices of one batch."""
        part = slice(int(self.edges[number]), int(self.edges[number + 1]))
        return self.domain[part], self.index[part]


@dataclass(frozen=True)
class Order:
    """A parsed order: plain data."""

    arrangement: str = "continual"
    correlated: bool = False
    sorted: bool = False
    long_tailed: bool = False
    dominant: bool = False
    single_sample: bool = False

    @classmethod
    def parse(cls, text: str | Sequence[str]) -> Order:
        words = text.split("+") if isinstance(text, str) else list(text)
        words = [word.strip().lower().replace("_", "-") for word in words]
        known = ARRANGEMENTS + MODIFIERS
        for word in words:
            if word not in known:
                raise ConfigError(
                    f"unknown order {word!r}; one of {', '.join(ARRANGEMENTS)}, and joined to it "
                    f"by '+' any of {', '.join(MODIFIERS)}"
                )
        arrangements = [word for word in words if word in ARRANGEMENTS]
        if len(arrangements) > 1 or len(set(words)) < len(words):
            raise ConfigError(
                f"order {'+'.join(words)!r} names more than one arrangement, or one word twice; "
                f"domains can be arranged in one way only: {', '.join(ARRANGEMENTS)}"
            )
        for one, other in (("correlated", "sorted"), ("long-tailed", "dominant")):
            if one in words and other in words:
                raise ConfigError(
                    f"order {'+'.join(words)!r}: {one} and {other} both decide the same; leave one"
                    " of them out"
                )
        flags = (word in words for word in MODIFIERS)
        return cls(arrangements[0] if arrangements else "continual", *flags)

    def __str__(self) -> str:
        on = (m for m in MODIFIERS if getattr(self, m.replace("-", "_")))
        return "+".join([self.arrangement, *on])


def random_state(seed: int, *words: object) -> np.random.RandomState:
    """Independent random numbers for each use, named by words (a domain, a visit)."""
    check_integer("seed", seed, 0)
    key = zlib.crc32("\0".join(map(str, words)).encode())
    return np.random.RandomState([int(seed) & 0xFFFFFFFF, int(seed) >> 32, key])


def limited(count: int, limit: int | None) -> Indices:
    """At most `limit` of `count` images, drawn once and for all.

    The choice must not depend on the seed of the stream, which changes the order alone. It is a
    random one because folders come sorted by class.
    """
    limit = count if limit is None else limit
    check_integer("limit", limit, 1)
    if limit >= count:
        return np.arange(count, dtype=np.int64)
    chosen = random_state(0, "limit", count).permutation(count)[:limit]
    return np.sort(chosen).astype(np.int64)


def long_tail_counts(largest: int, classes: int, imbalance: float) -> list[int]:
    """int(n_max · IF^(−c/(C−1))) for c = 0 … C−1."""
    if not 1 <= imbalance < np.inf:
        raise ConfigError(f"imbalance={imbalance!r}; a finite factor from 1 (balanced) is expected")
    if classes < 2:
        return [largest] * classes
    return [int(largest * imbalance ** (-c / (classes - 1))) for c in range(classes)]


def long_tail(labels: Indices, classes: int, imbalance: float) -> Indices:
    """Indices of a long-tailed subset: the first images of each class, in the given order.

    n_max is the size of the largest class; a class that has fewer than its share keeps all.
    """
    sizes = np.bincount(labels, minlength=classes)
    counts = long_tail_counts(int(sizes.max(initial=0)), classes, imbalance)
    kept = [np.flatnonzero(labels == c)[:count] for c, count in enumerate(counts)]
    return np.sort(np.concatenate(kept)).astype(np.int64)


def correlated(
    labels: Indices, concentration: float, random: np.random.RandomState, slots: int | None = None
) -> Indices:
    """A permutation in which neighbors tend to share their class.

    The stream has `slots` consecutive slots (default: as many as classes). The images of each
    class are dealt over the slots in proportions drawn from Dirichlet(concentration), and each slot
    is shuffled. Toward 0 a class comes in one stretch; toward ∞ the order is a plain shuffle.
    """
    if not (np.isfinite(concentration) and concentration > 0):
        raise ConfigError(f"concentration={concentration!r}; a number above 0 is expected")
    present = np.unique(labels)
    count = len(present) if slots is None else slots
    check_integer("slots", count, 1)
    dealt: list[list[Indices]] = [[] for _ in range(count)]
    for label in present:
        members = random.permutation(np.flatnonzero(labels == label))
        shares = random.standard_gamma(concentration, count)
        if shares.sum() <= 0:  # every draw underflowed: the limit is one slot for the whole class
            shares = np.eye(count)[random.randint(count)]
        cuts = np.rint(np.cumsum(shares / shares.sum())[:-1] * len(members)).astype(np.int64)
        for slot, part in zip(dealt, np.split(members, cuts), strict=True):
            slot.append(part)
    shuffled = [random.permutation(np.concatenate(slot)) for slot in dealt if slot]
    return np.concatenate(shuffled).astype(np.int64)


def by_class(labels: Indices, random: np.random.RandomState) -> Indices:
    """A permutation with one class after the other, in random order, each class shuffled."""
    members = [np.flatnonzero(labels == c) for c in random.permutation(np.unique(labels))]
    return np.concatenate([random.permutation(m) for m in members]).astype(np.int64)


def with_dominant(labels: Indices, number: int, share: float, limit: int | None = None) -> Indices:
    """Indices of a subset in which class `number` makes up `share`, the others in equal parts.

    At most `limit` images, and never more than the class has images for; drawn once and for all.
    A class that has fewer than its part keeps all.
    """
    if not 0 < share < 1:
        raise ConfigError(f"share={share!r}; a number between 0 and 1 is expected")
    check_integer("dominant", number, 0)
    present, sizes = np.unique(labels, return_counts=True)
    if number not in present or len(present) < 2:
        raise ConfigError(
            f"dominant={number}: the images are of the classes {present.tolist()}; one of them is"
            " expected, and another beside it"
        )
    total = int(sizes[present == number][0] / share)
    total = total if limit is None else min(total, limit)
    check_integer("limit", total, 1)
    random, kept = random_state(0, "dominant", len(labels)), []
    for label in present:
        part = share * total if label == number else (1 - share) * total / (len(present) - 1)
        kept.append(random.permutation(np.flatnonzero(labels == label))[: round(part)])
    return np.sort(np.concatenate(kept)).astype(np.int64)


def visits(names: Sequence[str], severities: Sequence[float | None]) -> list[int]:
    """Domain numbers in gradual order: each corruption's severities up, then down again."""
    groups: dict[str, list[int]] = {}
    for number, (name, severity) in enumerate(zip(names, severities, strict=True)):
        if severity is None:
            raise ConfigError(
                f"a gradual order needs a severity for every domain, and {name!r} has none; open "
                "the data set with corruption= and severity=[1, 2, 3, 4, 5]"
            )
        groups.setdefault(name.removesuffix(f"/{severity:g}"), []).append(number)
    path: list[int] = []
    for name, numbers in groups.items():
        if len(numbers) < 2:
            raise ConfigError(
                f"a gradual order needs several severities of {name!r}, and only one is open; "
                "open the data set with severity=[1, 2, 3, 4, 5]"
            )
        up = sorted(numbers, key=lambda number: severities[number] or 0)
        path += up + up[-2::-1]
    return path


def schedule(
    order: Order,
    names: Sequence[str],
    labels: Sequence[Indices],
    severities: Sequence[float | None],
    classes: int,
    *,
    seed: int,
    batch_size: int,
    limit: int | None = None,
    concentration: float = DEFAULT_CONCENTRATION,
    slots: int | None = None,
    imbalance: float = DEFAULT_IMBALANCE,
    dominant: int = 0,
    share: float = DEFAULT_SHARE,
) -> Schedule:
    """The schedule of a stream over domains given by name and labels.

    Choose images (by class, then limit: independent of the seed), arrange the domains, shuffle
    each visit. No batch crosses from one visit to the next; the last of a visit may be smaller.
    """
    check_integer("batch_size", batch_size, 1)
    chosen = []
    for own in labels:
        if order.dominant:
            chosen.append(with_dominant(own, dominant, share, limit))
            continue
        kept = long_tail(own, classes, imbalance) if order.long_tailed else np.arange(len(own))
        chosen.append(kept[limited(len(kept), limit)])

    def visit(numbers: Sequence[int], *words: object) -> tuple[Indices, Indices]:
        domain = np.concatenate([np.full(len(chosen[n]), n, dtype=np.int64) for n in numbers])
        index = np.concatenate([chosen[n] for n in numbers]).astype(np.int64)
        random = random_state(seed, order.arrangement == "mixed", *words)
        shown = np.concatenate([labels[n][chosen[n]] for n in numbers])
        if order.correlated:
            shuffle = correlated(shown, concentration, random, slots)
        elif order.sorted:
            shuffle = by_class(shown, random)
        else:
            shuffle = random.permutation(len(index))
        return domain[shuffle], index[shuffle]

    if order.arrangement == "mixed":
        parts = [visit(range(len(names)))]
    elif order.arrangement == "gradual":
        path = visits(names, severities)
        parts = [visit([n], names[n], path[:i].count(n)) for i, n in enumerate(path)]
    else:
        parts = [visit([n], names[n]) for n in range(len(names))]
    edges, resets = [0], []
    for _, index in parts:
        begin = edges[-1]
        for start in range(0, len(index), batch_size):
            edges.append(begin + min(start + batch_size, len(index)))
            resets.append(order.arrangement == "independent" and start == 0)
    return Schedule(
        np.concatenate([domain for domain, _ in parts]),
        np.concatenate([index for _, index in parts]),
        np.asarray(edges, dtype=np.int64),
        np.asarray(resets, dtype=np.bool_),
    )
