"""Everything a plan names, found and checked before any work is done."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor, nn

from .. import __version__
from ..adapter import Adapter
from ..api import adapt, build_method
from ..data.listing import Listing, checked, list_folder, read_list
from ..errors import ConfigError, DataError, FrettaError
from ..estimate.prior import class_shares
from ..experiment.case import count_classes
from ..method import Need
from ..methods import find_method
from ..models.labels import Labels, find_labels, truth_of
from ..models.opening import open_model
from ..models.preprocessing import Decoding, Preprocessing, find_preprocessing
from ..parts.compute import find_device
from .arriving import entries
from .feed import read_batches
from .plan import Plan

STDIN = "-"
SOURCE_IMAGES = 2000  # as many as EATA's paper takes for its anchor


@dataclass
class Opened:
    """The model, what it takes, its labels, the files in their order, what to tell the user."""

    net: nn.Module
    spec: str
    digest: str  # of the weights
    device: torch.device
    preprocessing: Preprocessing
    decoding: Decoding
    labels: Labels
    listing: Listing
    shuffled: bool
    truth: dict[str, int]  # folder -> class
    prior: list[float] | None = None  # share of every class
    stream: BinaryIO | None = None  # where paths arrive
    remarks: list[str] = field(default_factory=list)

    @property
    def total(self) -> int | None:
        return None if self.stream is not None else len(self.listing.names)

    def decisive(self, plan: Plan) -> dict[str, Any]:
        """What a resumed run must share: the settings, the weights, the files."""
        names = "\0".join(self.listing.names).encode("utf-8", "surrogateescape")
        return {
            **plan.decisive(),
            "fretta": __version__,
            "torch": torch.__version__,
            "weights": self.digest,
            "files": None if self.stream is not None else hashlib.sha256(names).hexdigest(),
            "count": self.total,
            "labels": hashlib.sha256(repr(self.labels.names).encode()).hexdigest(),
            "device": self.device.type,
        }


def open_plan(plan: Plan, stdin: BinaryIO | None = None) -> Opened:
    """Find everything; a FrettaError says what is missing."""
    model = open_model(plan.model, plan.weights, plan.num_classes, plan.pretrained)
    device = find_device(plan.device)
    net = model.net.to(device)
    how = find_preprocessing(
        net, model.spec, size=plan.size, mean=plan.mean, std=plan.std, fit=plan.fit
    )
    labels = find_labels(net, count_classes(net, how), plan.labels)
    prior = None
    if plan.prior is not None:
        prior = class_shares(plan.prior, labels.by_name(), len(labels.names))
    stream = None
    if plan.data == STDIN:
        stream = stdin if stdin is not None else sys.stdin.buffer
        listing = Listing(os.path.realpath(plan.root if plan.root is not None else "."))
    else:
        listing = _listing(plan)
    remarks = _remarks(listing, plan)
    shuffled = _order(listing, plan, remarks)
    truth, why_not = truth_of(listing.names, labels)
    if why_not:
        remarks.append(f"no accuracy is reported: {why_not}")
    return Opened(
        net=net,
        spec=model.spec,
        digest=model.digest(),
        device=device,
        preprocessing=how,
        decoding=how.decoding(alpha=plan.alpha),
        labels=labels,
        listing=listing,
        shuffled=shuffled,
        truth=truth,
        prior=prior,
        stream=stream,
        remarks=remarks,
    )


def _listing(plan: Plan) -> Listing:
    path = Path(plan.data)
    if path.is_file():
        found = read_list(path, plan.root, plan.allow_outside, plan.null)
    else:
        found = list_folder(path, plan.allow_outside)
    if not found.names:
        left = f" ({found.ignored:,} other files, {found.links:,} links that lead outside)"
        raise DataError(f"no images in {plan.data!r}" + (left if not path.is_file() else ""))
    return found


def _remarks(listing: Listing, plan: Plan) -> list[str]:
    said = []
    if listing.ignored:
        said.append(f"{listing.ignored:,} files are no images by their names: ignored")
    if listing.links:
        said.append(
            f"{listing.links:,} links lead outside {plan.data}: left out; --allow-outside follows"
        )
    return said


def _order(listing: Listing, plan: Plan, remarks: list[str]) -> bool:
    """Put the names into their order; whether they were shuffled.

    Folders tend to be classes or places. One after the other they are a hard order: a batch of
    one class has statistics that say nothing about the others.
    """
    folder = plan.data != STDIN and Path(plan.data).is_dir()
    if plan.data == STDIN and plan.shuffle:
        raise ConfigError("--shuffle needs all paths at once; they arrive one by one on -")
    shuffle = folder and listing.folders > 1 if plan.shuffle is None else plan.shuffle
    if shuffle:
        # RandomState: its numbers are the same with every numpy version
        order = np.random.RandomState(plan.seed).permutation(len(listing.names))
        listing.names = [listing.names[i] for i in order]
        if plan.shuffle is None:
            remarks.append(
                f"the images lie in {listing.folders:,} folders: shuffled (seed {plan.seed}), since"
                " one class after the other is a hard order; --no-shuffle keeps them sorted"
            )
    if plan.limit is not None:
        listing.names = listing.names[: plan.limit]
    return shuffle


def names_of(opened: Opened, plan: Plan, stop: threading.Event) -> Iterator[str]:
    """The names, known or arriving."""
    if opened.stream is None:
        yield from opened.listing.names
        return
    separator = b"\0" if plan.null else b"\n"
    arriving = entries(opened.stream, stop, separator)
    root, where = opened.listing.root, "the standard input"
    for number, name in enumerate(checked(arriving, root, plan.allow_outside, plan.null, where), 1):
        yield name
        if number == plan.limit:
            return


def open_adapter(plan: Plan, opened: Opened, callback: Any) -> Adapter:
    settings = dict(plan.hyperparameters)
    build_method(plan.method, settings)  # refuses unknown names before source images are read
    source = None
    if Need.SOURCE in find_method(plan.method).needs and plan.source is not None:
        source = _source(plan, opened)
    adapter = adapt(
        opened.net,
        plan.method,
        source=source,
        head=plan.head,
        guard=None if plan.guard == "none" else plan.guard,
        **settings,
    )
    adapter.on_health(callback)
    return adapter


def _source(plan: Plan, opened: Opened) -> Iterator[Tensor]:
    if plan.source is None:
        raise ConfigError("--source is needed")
    found = list_folder(plan.source, plan.allow_outside)
    if not found.names:
        raise FrettaError(f"no images in --source {str(plan.source)!r}")
    order = np.random.RandomState(0).permutation(len(found.names))[:SOURCE_IMAGES]
    paths = [found.path(found.names[i]) for i in order]
    for _, pixels in read_batches(paths, opened.decoding, plan.batch_size, plan.workers):
        yield opened.preprocessing.apply(pixels, opened.device)
