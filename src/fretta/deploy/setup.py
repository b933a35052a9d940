"""Everything the options name, found and checked before any work is done."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from .. import __version__
from ..data.listing import Listing, checked, list_folder, read_list
from ..data.read_ahead import read_entries, read_readable
from ..errors import ConfigError, DataError
from ..estimate.prior import class_shares
from ..experiment.case import Case
from ..models.labels import named_by_folders, truth_of
from ..models.preprocessing import Decoding
from .options import STDIN, AdaptOptions


@dataclass
class Setup:
    """The model, its labels and the files in their order."""

    options: AdaptOptions
    case: Case
    listing: Listing
    shuffled: bool
    folder_classes: dict[str, int]  # folder -> class, where folders are named as classes
    prior: list[float] | None  # share of every class
    stream: BinaryIO | None  # where paths arrive

    @property
    def total(self) -> int | None:
        return None if self.stream is not None else len(self.listing.names)

    def identity(self) -> dict[str, Any]:
        """What a resumed run must share: the options, the weights, the files."""
        names = "\0".join(self.listing.names).encode("utf-8", "surrogateescape")
        return {
            **self.options.identity(),
            "fretta": __version__,
            "torch": torch.__version__,
            "weights": self.case.weights_hash,
            "files": None if self.stream is not None else hashlib.sha256(names).hexdigest(),
            "count": self.total,
            "labels": hashlib.sha256(repr(self.case.labels.names).encode()).hexdigest(),
            "device": self.case.device.type,
        }

    def names(self, stop: threading.Event) -> Iterator[str]:
        """The names of all files, as they arrive on a stream."""
        options = self.options
        if self.stream is None:
            yield from self.listing.names
            return
        entries = read_entries(self.stream, stop, b"\0" if options.null else b"\n")
        root, where = self.listing.root, "the standard input"
        names = checked(entries, root, options.allow_outside, options.null, where)
        for number, name in enumerate(names, 1):
            yield name
            if number == options.limit:
                return

    @property
    def decoding(self) -> Decoding:
        return self.case.preprocessing.decoding(alpha=self.options.alpha)

    def to_input(self, pixels: Tensor) -> Tensor:
        return self.case.preprocessing.apply(pixels, self.case.device)

    def read(self, names: list[str]) -> Iterator[tuple[list[int], Tensor]]:
        """(positions, input of the model) of the files that can be read, in batches."""
        path, size, workers = self.listing.path, self.options.batch_size, self.options.workers
        for positions, pixels in read_readable(names, path, self.decoding, size, workers):
            yield positions, self.to_input(pixels)


def prepare(options: AdaptOptions, stdin: BinaryIO | None, note: Callable[[str], None]) -> Setup:
    """Find everything; a FrettaError says what is missing. `note` gets sentences for the user."""
    case = options.open_case()
    case.allow_outside = options.allow_outside
    if options.data == STDIN:
        if options.shuffle:
            raise ConfigError("--shuffle needs all paths at once; they arrive one by one on -")
        listing, shuffled = Listing(os.path.realpath(options.root or ".")), False
    else:
        names = ("root", "allow_outside", "null", "shuffle", "seed", "limit")
        given = {name: getattr(options, name) for name in names}
        listing, shuffled = find_images(options.data, note, **given)
    case.labels = labels = named_by_folders(case.labels, listing.folders)
    folder_classes, why_not = truth_of(listing.folders, labels)
    if why_not:
        note(f"no accuracy is reported: {why_not}")
    prior = None
    if options.prior is not None:
        prior = class_shares(options.prior, labels.by_name(), len(labels.names))
    stream = (stdin or sys.stdin.buffer) if options.data == STDIN else None
    return Setup(options, case, listing, shuffled, folder_classes, prior, stream)


def find_images(
    data: str,
    note: Callable[[str], None],
    *,
    root: Path | None = None,
    allow_outside: bool = False,
    null: bool = False,
    shuffle: bool | None = None,
    seed: int = 0,
    limit: int | None = None,
) -> tuple[Listing, bool]:
    """The images of a folder or a list in their order, and whether they were shuffled.

    Folders tend to be classes or places. One after the other they are a hard order: the statistics
    of a batch of one class do not fit the others.
    """
    path = Path(data)
    if path.is_file():
        found = read_list(path, root, allow_outside, null)
    else:
        found = list_folder(path, allow_outside)
    if not found.names and path.is_file():
        raise DataError(f"the list {data!r} is empty; write the path of an image into each line")
    if not found.names:
        raise DataError(
            f"no images in {data!r} ({found.ignored:,} other files, {found.links:,} links that lead"
            " outside)"
        )
    if found.ignored:
        note(f"{found.ignored:,} files are no images by their names: ignored")
    if found.links:
        note(f"{found.links:,} links lead outside {data}: left out (adapt: --allow-outside)")
    if shuffle is None and path.is_dir() and len(found.folders) > 1:
        shuffle = True
        note(
            f"the images lie in {len(found.folders):,} folders: shuffled (seed {seed}), since"
            " one class after the other is a hard order (adapt: --no-shuffle)"
        )
    if shuffle:
        # RandomState: its numbers are the same with every numpy version
        order = np.random.RandomState(seed).permutation(len(found.names))
        found.names = [found.names[i] for i in order]
    found.names = found.names[:limit]
    return found, bool(shuffle)
