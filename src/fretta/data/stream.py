"""A stream: batches of a data set in a fixed order, decoded ahead of the model."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import ConfigError, FrettaWarning
from .batch import Batch, Decoded, Plan, Reader
from .domain import Dataset, ImageFiles, Unreadable
from .order import DEFAULT_CONCENTRATION, DEFAULT_IMBALANCE, Indices, Order, arrange, cut
from .workers import ahead

ERRORS = ("raise", "skip")


@dataclass(eq=False)
class Stream:
    """Batches of a data set. Iterate it, as often as needed; every pass is the same.

    `recipe` says how it was made, `skipped` which images the latest pass left out.
    """

    dataset: Dataset
    plan: Plan
    recipe: dict[str, Any]
    workers: int = 0
    errors: str = "raise"
    prefetch: int = 2  # batches each worker decodes ahead
    skipped: list[Unreadable] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.errors not in ERRORS:
            raise ConfigError(f"errors={self.errors!r}; one of {', '.join(ERRORS)} is expected")
        for name, least in (("workers", 0), ("prefetch", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{name}={value!r}; an integer from {least} is expected")

    def __repr__(self) -> str:
        how = f"{self.recipe.get('order', 'as saved')}, seed {self.recipe.get('seed')}"
        return (
            f"<Stream of {self.dataset.name!r} ({how}): {self.samples:,} images of"
            f" {len(self.dataset.domains)} domain(s) in {len(self):,} batches of up to"
            f" {self.plan.largest}>"
        )

    def __len__(self) -> int:
        """Number of batches."""
        return len(self.plan)

    @property
    def samples(self) -> int:
        return len(self.plan.index)

    @property
    def labels(self) -> Indices:
        """Labels of the whole stream, in order, without reading an image."""
        labels = np.empty(self.samples, dtype=np.int64)
        for which, domain in enumerate(self.dataset.domains):
            mine = self.plan.domain == which
            labels[mine] = domain.labels[self.plan.index[mine]]
        return labels

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """The batches from number `start` on, to resume a run."""
        if not 0 <= start <= len(self):
            raise ConfigError(f"start={start}; the stream has batches 0 to {len(self) - 1}")
        self.skipped = []
        reader = Reader(self.dataset.domains, self.plan, self.errors)
        owed = False  # a reset whose batch turned out to be unreadable as a whole
        decoded = ahead(reader, range(start, len(self)), self.workers, self.prefetch)
        try:
            for number, item in zip(range(start, len(self)), decoded, strict=True):
                if item.error is not None:
                    raise item.error
                self._report(item.skipped)
                owed = owed or bool(self.plan.resets[number])
                if len(item.kept):
                    yield self._batch(number, item, owed)
                    owed = False
        finally:
            decoded.close()  # ends the workers, also after an exception or an early break
        if len(self.skipped) > 1:
            warnings.warn(
                f"{len(self.skipped)} of {self.samples} images were unreadable and skipped; "
                "stream.skipped lists them",
                FrettaWarning,
                stacklevel=2,
            )

    def _report(self, skipped: tuple[Unreadable, ...]) -> None:
        if skipped and not self.skipped:
            warnings.warn(
                f"skipped: {skipped[0].reason}; further ones are counted in stream.skipped",
                FrettaWarning,
                stacklevel=4,
            )
        self.skipped += skipped

    def _batch(self, number: int, item: Decoded, reset: bool) -> Batch:
        domain, index = (part[item.kept] for part in self.plan.batch(number))
        labels = np.empty(len(index), dtype=np.int64)
        found = np.unique(domain)
        for which in found:
            mine = domain == which
            labels[mine] = self.dataset.domains[which].labels[index[mine]]
        name = self.dataset.domains[found[0]].name if len(found) == 1 else "mixed"
        return Batch(
            torch.from_numpy(item.x),
            torch.from_numpy(labels),
            name,
            domain,
            index,
            number,
            reset,
            item.skipped,
        )

    def paths(self, batch: Batch) -> list[str]:
        """Where each image of a batch comes from: its file, or `domain#index` in an array."""
        found = []
        for which, index in zip(batch.domains, batch.index, strict=True):
            domain = self.dataset.domains[which]
            if isinstance(domain.source, ImageFiles):
                found.append(domain.source.path(int(domain.rows[index])))
            else:
                found.append(f"{domain.name}#{index}")
        return found

    def digest(self) -> str:
        """A hash of the order: equal digests, equal streams of one data set."""
        parts = (self.plan.domain, self.plan.index, self.plan.edges, self.plan.resets)
        joined = b"".join(part.astype("<i8").tobytes() for part in parts)
        return hashlib.sha256(joined).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the index file; `load_stream` replays it."""
        from .index import save_index

        save_index(self, Path(path))


def make_stream(
    dataset: Dataset,
    order: str | Sequence[str] = "continual",
    *,
    seed: int = 0,
    batch_size: int | None = None,
    limit: int | None = None,
    domains: str | Sequence[str] | None = None,
    concentration: float | None = None,
    slots: int | None = None,
    imbalance: float | None = None,
    workers: int = 0,
    errors: str = "raise",
    prefetch: int = 2,
) -> Stream:
    """Batches of `dataset` in an order such as "continual" or "mixed+correlated" (see order.py).

    batch_size: 128 unless told. limit: images per domain. concentration, slots: for correlated.
    imbalance: for long-tailed. errors: what to do with an unreadable image, "raise" or "skip".
    The seed changes the order and nothing else.
    """
    parsed = Order.parse(order)
    for option, value, on, word in (
        ("concentration", concentration, parsed.correlated, "correlated"),
        ("slots", slots, parsed.correlated, "correlated"),
        ("imbalance", imbalance, parsed.long_tailed, "long-tailed"),
    ):
        if value is not None and not on:
            raise ConfigError(f"{option}={value} has no effect without {word!r} in the order")
    if parsed.single_sample and batch_size not in (None, 1):
        raise ConfigError(
            f"batch_size={batch_size} contradicts single-sample, which has batches of 1"
        )
    size = 1 if parsed.single_sample else 128 if batch_size is None else batch_size
    if domains is not None:
        dataset = dataset.only(domains)
    recipe: dict[str, Any] = {
        "order": str(parsed),
        "seed": seed,
        "batch_size": size,
        "limit": limit,
    }
    if parsed.correlated:
        recipe["concentration"] = DEFAULT_CONCENTRATION if concentration is None else concentration
        recipe["slots"] = slots
    if parsed.long_tailed:
        recipe["imbalance"] = DEFAULT_IMBALANCE if imbalance is None else imbalance
    segments = arrange(
        parsed,
        dataset.names,
        [domain.labels for domain in dataset.domains],
        [domain.severity for domain in dataset.domains],
        len(dataset.classes),
        **{key: value for key, value in recipe.items() if key not in ("order", "batch_size")},
    )
    edges, resets = cut(segments, size)
    plan = Plan(
        np.concatenate([segment.domain for segment in segments]),
        np.concatenate([segment.index for segment in segments]),
        edges,
        resets,
    )
    return Stream(dataset, plan, recipe, workers=workers, errors=errors, prefetch=prefetch)
