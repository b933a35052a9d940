"""The values data sets are made of: where pixels come from, a domain, a data set."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..corruptions import corrupt
from ..errors import ConfigError, DataError
from ..models.preprocessing import Decoding
from .images import decode, resize_arrays


@dataclass(frozen=True)
class Unreadable:
    """An image that could not be decoded."""

    path: str
    reason: str


def check_choice(option: str, value: object, choices: Sequence[object]) -> None:
    if value not in choices:
        raise ConfigError(f"{option}={value!r}; one of {', '.join(map(str, choices))} is expected")


def check_integer(option: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ConfigError(f"{option}={value!r}; an integer from {least} is expected")


def as_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """Domain names as given by a caller: one or several."""
    chosen = (names,) if isinstance(names, str) else tuple(names)
    if not chosen:
        raise ConfigError("an empty list of domains; leave the option out for all of them")
    return chosen


class Source(Protocol):
    """Rows of pixels. Implementations hold paths, not pixels, so workers get them cheaply."""

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """(n, H, W, 3) uint8; DataError where a row cannot be read."""
        ...


@dataclass(frozen=True)
class ImageFiles:
    """Source: one file per row, below one folder."""

    folder: str
    files: tuple[str, ...]  # relative to the folder, with forward slashes
    decoding: Decoding

    def __repr__(self) -> str:
        return f"<ImageFiles: {len(self.files):,} below {self.folder!r}>"

    def path(self, row: int) -> str:
        return f"{self.folder}/{self.files[row]}"

    def changed(self) -> float:
        """When the newest of the files was written, in seconds since 1970."""
        times = [0.0]
        for row in range(len(self.files)):
            with suppress(OSError):
                times.append(os.stat(self.path(row)).st_mtime)
        return max(times)

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        images, _, failures = self.read_some(rows)
        if failures:
            raise DataError(failures[0].reason)
        return images

    def read_some(
        self, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], list[Unreadable]]:
        """Images, the positions in `rows` they belong to, and what could not be decoded."""
        images, kept, failures = [], [], []
        for position, row in enumerate(rows):
            path = self.path(row)
            try:
                images.append((path, decode(path, self.decoding)))
                kept.append(position)
            except DataError as error:
                failures.append(Unreadable(path, str(error)))
        return _stacked(images), np.array(kept, dtype=np.int64), failures


def _stacked(images: list[tuple[str, NDArray[np.uint8]]]) -> NDArray[np.uint8]:
    if not images:
        return np.zeros((0, 1, 1, 3), dtype=np.uint8)
    first, shape = images[0][0], images[0][1].shape
    for path, image in images:
        if image.shape != shape:
            raise DataError(
                f"{path} is {image.shape[1]}×{image.shape[0]} but {first} is "
                f"{shape[1]}×{shape[0]}; open the data set with size="
            )
    return np.stack([image for _, image in images])


@dataclass(frozen=True, eq=False)
class Domain:
    """Images that share one condition: a style, a corruption at one severity.

    `rows` says which row of the source each image is. A corruption made on the fly is seeded by
    that row, so an image looks the same in whatever batch, order or worker it turns up.
    """

    name: str
    labels: NDArray[np.int64]
    source: Source
    rows: NDArray[np.int64]
    corruption: str | None = None  # what the domain shows
    severity: float | None = None
    made: bool = False  # True: the corruption is applied when an image is read
    seed: int = 0  # of the corruption made on the fly
    constants: str | None = None  # "cifar" or "imagenet" to force one set of constants on it
    size: int | None = None  # resize to this many pixels after everything else

    def __repr__(self) -> str:
        return f"<Domain {self.name!r}: {len(self.rows)} images>"

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.rows):
            counts = f"{len(self.rows)} images and {len(self.labels)} labels"
            raise DataError(f"domain {self.name!r} has {counts}")
        if not len(self.rows):
            raise DataError(f"domain {self.name!r} is empty")

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def paths(self) -> list[str] | None:
        """One path per image, or None where images are rows of an array."""
        if not isinstance(self.source, ImageFiles):
            return None
        return [self.source.path(row) for row in self.rows]

    def read(self, indices: ArrayLike) -> NDArray[np.uint8]:
        """(n, H, W, 3) uint8 pixels; an unreadable image is a DataError that names it."""
        rows = self.rows[self._checked(indices)]
        return self._finished(self.source.read(rows), rows)

    def read_some(
        self, indices: ArrayLike
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], list[Unreadable]]:
        """Like `read`, but leaves out what cannot be decoded.

        Returns the images, their positions in `indices`, and the failures.
        """
        rows = self.rows[self._checked(indices)]
        if not isinstance(self.source, ImageFiles):
            return self._finished(self.source.read(rows), rows), np.arange(len(rows)), []
        images, kept, failures = self.source.read_some(rows)
        return self._finished(images, rows[kept]), kept, failures

    def subset(self, indices: ArrayLike) -> Domain:
        """The same domain with only these images, in this order."""
        chosen = self._checked(indices)
        return replace(self, labels=self.labels[chosen], rows=self.rows[chosen])

    def _checked(self, indices: ArrayLike) -> NDArray[np.int64]:
        chosen = np.asarray(indices)
        if not chosen.size:
            return np.zeros(0, dtype=np.int64)
        integers = chosen.dtype.kind in "iu" and chosen.ndim == 1
        if not integers or chosen.min() < 0 or chosen.max() >= len(self):
            raise ConfigError(
                f"indices of domain {self.name!r} must be integers from 0 to {len(self) - 1}"
            )
        return chosen.astype(np.int64)

    def _finished(self, images: NDArray[np.uint8], rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        if self.made and len(images):
            images = corrupt(
                images,
                str(self.corruption),
                5 if self.severity is None else self.severity,
                seed=self.seed,
                indices=rows,
                constants=self.constants,
            )
        return resize_arrays(images, self.size) if self.size and len(images) else images


@dataclass(frozen=True, eq=False)
class Dataset:
    """Domains with one list of classes."""

    name: str
    classes: list[str]
    domains: list[Domain]
    options: dict[str, Any] = field(default_factory=dict)  # what open_dataset was given
    root: str | None = None  # the folder that was found
    missing: tuple[str, ...] = ()  # known domains that are not on disk

    def __repr__(self) -> str:
        names = self.names if len(self.names) < 4 else [self.names[0], "…", self.names[-1]]
        images = sum(map(len, self.domains))
        return (
            f"<Dataset {self.name!r}: {images:,} images, {len(self.classes)} classes,"
            f" {len(self.domains)} domain(s): {', '.join(names)}>"
        )

    @property
    def names(self) -> list[str]:
        return [domain.name for domain in self.domains]

    def domain(self, name: str) -> Domain:
        for domain in self.domains:
            if domain.name == name:
                return domain
        raise ConfigError(f"{self.name} has no domain {name!r}; it has {', '.join(self.names)}")

    def only(self, names: str | Sequence[str]) -> Dataset:
        """The same data set with these domains, in this order."""
        return replace(self, domains=[self.domain(name) for name in as_names(names)])

    def fingerprint(self) -> str:
        """A hash of what a stream depends on: domains, labels, which rows, file names."""
        digest = hashlib.sha256(json.dumps([self.name, self.classes]).encode())
        for d in self.domains:
            facts = [d.name, d.corruption, d.severity, d.made, d.seed, d.constants]
            digest.update(json.dumps(facts).encode())
            digest.update(d.labels.astype("<i8").tobytes() + d.rows.astype("<i8").tobytes())
            if isinstance(d.source, ImageFiles):
                digest.update("\n".join(d.source.files).encode("utf-8", "surrogateescape"))
        return digest.hexdigest()
