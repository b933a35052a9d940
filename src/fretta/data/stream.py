"""A stream: batches of a data set in a fixed order, decoded ahead of the model."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._util import atomic
from ..errors import ConfigError, DataError, FrettaWarning
from .datasets import open_dataset
from .domain import Dataset, Domain, Unreadable, check_choice, check_integer
from .order import (
    DEFAULT_CONCENTRATION,
    DEFAULT_IMBALANCE,
    DEFAULT_SHARE,
    Indices,
    Order,
    Schedule,
    schedule,
)
from .workers import ahead

INDEX_FORMAT = 1
_ARRAYS = ("domain", "index", "edges", "resets")  # of a Schedule, in an index file


@dataclass(frozen=True, eq=False)
class Batch:
    """`x` goes to the adapter, everything else around it."""

    x: Tensor  # uint8 (n, 3, H, W)
    y: Tensor  # int64 (n,)
    domain: str  # "mixed" where the images come from several
    domains: Indices  # (n,) number of each image's domain in the data set
    index: Indices  # (n,) position in that domain
    number: int  # of the batch in the stream
    reset: bool = False  # the adapter is reset before this batch
    skipped: tuple[Unreadable, ...] = ()

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.x.shape[1:]))
        return f"<Batch {self.number}: {len(self)} images ({shape}) of {self.domain!r}>"

    def __len__(self) -> int:
        return len(self.index)


def _read(
    domains: Sequence[Domain], schedule: Schedule, errors: str, number: int
) -> tuple[NDArray[np.uint8], Indices, list[Unreadable]]:
    """Of one batch: images (n, 3, H, W), their positions in it, and what could not be decoded."""
    domain, index = schedule.batch(number)
    images, places, skipped = [], [], []
    for which in np.unique(domain):
        place = np.flatnonzero(domain == which)
        pixels, kept, failures = domains[which].read_some(index[place])
        if failures and errors == "raise":
            raise DataError(failures[0].reason)
        skipped += failures
        if len(pixels):
            images.append(pixels)
            places.append(place[kept])
    if not images:
        return np.zeros((0, 3, 1, 1), np.uint8), np.zeros(0, np.int64), skipped
    shapes = {pixels.shape[1:] for pixels in images}
    if len(shapes) > 1:
        raise ConfigError(f"images of shapes {sorted(shapes)}; open the data set with size=")
    positions = np.concatenate(places)
    order = np.argsort(positions)  # back into the order of the stream
    x = np.concatenate(images)[order].transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x), positions[order], skipped


@dataclass(eq=False)
class Stream:
    """Batches of a data set. Iterate it as often as needed; every pass is the same.

    `recipe` holds the options it was made with, `skipped` the images the latest pass left out.
    """

    dataset: Dataset
    schedule: Schedule
    recipe: dict[str, Any]
    workers: int = 0
    errors: str = "raise"
    skipped: list[Unreadable] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_choice("errors", self.errors, ("raise", "skip"))
        check_integer("workers", self.workers, 0)

    def __repr__(self) -> str:
        largest = int(np.diff(self.schedule.edges).max(initial=0))
        return (
            f"<Stream of {self.dataset.name!r} ({self.recipe.get('order', 'as saved')}, seed"
            f" {self.recipe.get('seed')}): {self.samples:,} images of"
            f" {len(self.dataset.domains)} domain(s) in {len(self):,} batches of up to {largest}>"
        )

    def __len__(self) -> int:
        """Number of batches."""
        return len(self.schedule)

    @property
    def samples(self) -> int:
        return len(self.schedule.index)

    @property
    def labels(self) -> Indices:
        """Labels of all images, in order, without reading an image."""
        return self._labels(self.schedule.domain, self.schedule.index)

    def _labels(self, domain: Indices, index: Indices) -> Indices:
        labels = np.empty(len(index), dtype=np.int64)
        for which in np.unique(domain):
            mine = domain == which
            labels[mine] = self.dataset.domains[which].labels[index[mine]]
        return labels

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """The batches from number `start` on, to resume a run."""
        if not 0 <= start <= len(self):
            raise ConfigError(f"start={start}; the stream has batches 0 to {len(self) - 1}")
        self.skipped = []
        numbers = range(start, len(self))
        reader = partial(_read, self.dataset.domains, self.schedule, self.errors)
        decoded = ahead(reader, numbers, self.workers)
        reset = False  # kept for the next batch where every image of one is unreadable
        try:
            for number, (x, kept, skipped) in zip(numbers, decoded, strict=True):
                if skipped and not self.skipped:
                    warnings.warn(
                        f"skipped: {skipped[0].reason}; further ones are counted in stream.skipped",
                        FrettaWarning,
                        stacklevel=3,
                    )
                self.skipped += skipped
                reset = reset or bool(self.schedule.resets[number])
                if not len(kept):
                    continue
                domain, index = (part[kept] for part in self.schedule.batch(number))
                y = torch.from_numpy(self._labels(domain, index))
                one = (domain == domain[0]).all()
                name = self.dataset.domains[domain[0]].name if one else "mixed"
                pixels = torch.from_numpy(x)
                yield Batch(pixels, y, name, domain, index, number, reset, tuple(skipped))
                reset = False
        finally:
            decoded.close()  # ends the workers, also after an exception or an early break
        if len(self.skipped) > 1:
            warnings.warn(
                f"{len(self.skipped)} of {self.samples} images were unreadable and skipped; "
                "stream.skipped lists them",
                FrettaWarning,
                stacklevel=2,
            )

    def digest(self) -> str:
        """A hash of the order: equal digests, equal streams of one data set."""
        arrays = (getattr(self.schedule, name) for name in _ARRAYS)
        joined = b"".join(array.astype("<i8").tobytes() for array in arrays)
        return hashlib.sha256(joined).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write order, recipe and the data set's fingerprint; `load_stream` replays them."""
        header = {
            "format": INDEX_FORMAT,
            "dataset": self.dataset.name,
            "options": self.dataset.options,
            "domains": self.dataset.names,
            "fingerprint": self.dataset.fingerprint(),
            "recipe": self.recipe,
            "errors": self.errors,
        }
        text = np.frombuffer(json.dumps(header, sort_keys=True).encode(), dtype=np.uint8)
        packed = {}
        for name in _ARRAYS:  # in the smallest type: 150,000 images take about 300 kB
            values = getattr(self.schedule, name)
            packed[name] = values.astype(np.min_scalar_type(int(values.max(initial=0))))
        with atomic(Path(path)) as draft, draft.open("wb") as file:
            np.savez_compressed(file, header=text, **packed)


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
    dominant: int | None = None,
    share: float | None = None,
    workers: int = 0,
    errors: str = "raise",
) -> Stream:
    """Batches of `dataset` in an order such as "continual" or "mixed+correlated" (see order.py).

    batch_size: 128 by default. limit: images per domain. concentration, slots: for correlated.
    imbalance: for long-tailed. dominant, share: for dominant, the number of the class and its share
    of the images. errors: what to do with an unreadable image, "raise" or "skip".
    The seed changes the order and nothing else.
    """
    parsed = Order.parse(order)
    for option, value, on, word in (
        ("concentration", concentration, parsed.correlated, "correlated"),
        ("slots", slots, parsed.correlated, "correlated"),
        ("imbalance", imbalance, parsed.long_tailed, "long-tailed"),
        ("dominant", dominant, parsed.dominant, "dominant"),
        ("share", share, parsed.dominant, "dominant"),
    ):
        if value is not None and not on:
            raise ConfigError(f"{option}={value} has no effect without {word!r} in the order")
    if batch_size is None:
        batch_size = 1 if parsed.single_sample else 128
    if parsed.single_sample and batch_size != 1:
        raise ConfigError(f"batch_size={batch_size}; single-sample has batches of 1")
    if domains is not None:
        dataset = dataset.only(domains)
    options: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "limit": limit}
    if parsed.correlated:
        options["concentration"] = DEFAULT_CONCENTRATION if concentration is None else concentration
        options["slots"] = slots
    if parsed.long_tailed:
        options["imbalance"] = DEFAULT_IMBALANCE if imbalance is None else imbalance
    if parsed.dominant:
        options["dominant"] = 0 if dominant is None else dominant
        options["share"] = DEFAULT_SHARE if share is None else share
    planned = schedule(
        parsed,
        dataset.names,
        [domain.labels for domain in dataset.domains],
        [domain.severity for domain in dataset.domains],
        len(dataset.classes),
        **options,
    )
    return Stream(dataset, planned, {"order": str(parsed), **options}, workers, errors)


def load_stream(
    path: str | Path,
    dataset: Dataset | None = None,
    *,
    root: str | os.PathLike[str] | None = None,
    workers: int = 0,
    errors: str | None = None,
) -> Stream:
    """The stream written by `Stream.save`, batch for batch.

    Without `dataset` the one the file names is opened with the options it had. The data must not
    have changed: same domains, labels and file names.
    """
    path = Path(path)
    header, saved = _read_index(path)
    if dataset is None:
        dataset = open_dataset(header["dataset"], root, **header["options"])
    if dataset.names != header["domains"]:
        dataset = dataset.only(header["domains"])
    if dataset.fingerprint() != header["fingerprint"]:
        raise DataError(
            f"{path} was made for {header['dataset']} with other images or labels than "
            f"{dataset.root or dataset.name} has; make it again: {json.dumps(header['recipe'])}"
        )
    sizes = np.array([len(domain) for domain in dataset.domains])
    if saved.domain.max(initial=0) >= len(sizes) or (saved.index >= sizes[saved.domain]).any():
        raise DataError(f"{path} is damaged: it names images outside the data set")
    return Stream(dataset, saved, header["recipe"], workers, errors or header["errors"])


def _read_index(path: Path) -> tuple[dict[str, Any], Schedule]:
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            header = json.loads(file["header"].tobytes())
            domain, index, edges, resets = (file[name].astype(np.int64) for name in _ARRAYS)
            version = header["format"]
    except FileNotFoundError:
        raise DataError(f"no index file {path}") from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is no stream index file: {error}") from error
    if version != INDEX_FORMAT:
        raise DataError(f"{path} has index format {version}; {INDEX_FORMAT} is expected")
    if (
        len(domain) != len(index)
        or len(edges) != len(resets) + 1
        or edges[0] != 0
        or edges[-1] != len(index)
        or (np.diff(edges) < 1).any()
    ):
        raise DataError(f"{path} is damaged: its arrays do not fit together")
    return header, Schedule(domain, index, edges, resets.astype(np.bool_))
