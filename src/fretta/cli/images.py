"""Where `fretta compare` takes its images from: a data set by name, a folder or a list."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, DataError
from .app import say

if TYPE_CHECKING:
    import torch

    from ..experiment.loop import Item
    from ..models.labels import Labels
    from ..models.preprocessing import Preprocessing


@dataclass(frozen=True)
class Given:
    """What was said about the data and how the model takes it."""

    data: str
    root: Path | None
    domain: list[str] | None
    corruption: str | None
    severity: int
    order: str
    batch_size: int
    seed: int
    limit: int | None
    labels: Path | None
    workers: int
    device: torch.device
    skip_unreadable: bool = False


@dataclass
class Images:
    """Batches to compare methods on, and what is known of them."""

    items: Iterator[Item]
    total: int
    labels: Labels
    unreadable: list[tuple[str, str]] = field(default_factory=list)  # (file, why), as they turn up


def from_data_set(given: Given, how: Preprocessing) -> Images:
    """A data set by its name: domains are judged one by one, and labels are known."""
    from ..data import make_stream, open_dataset
    from ..data.datasets import reading_options
    from ..experiment.loop import Item
    from ..models.labels import Labels

    options = reading_options(given.data, how)
    if given.corruption is not None:
        options |= {"corruption": given.corruption, "severity": given.severity}
    dataset = open_dataset(given.data, given.root, **options)
    stream = make_stream(
        dataset,
        given.order,
        seed=given.seed,
        batch_size=given.batch_size,
        limit=given.limit,
        domains=given.domain,
    )

    def items() -> Iterator[Item]:
        for batch in stream:
            x = how.apply(batch.x, given.device)
            yield Item(x, batch.y, batch.reset, batch.domain)

    return Images(items(), stream.samples, Labels(list(dataset.classes), "the data set"))


def from_files(given: Given, how: Preprocessing, net: Any) -> Images:
    """A folder or list, read as `fretta adapt` reads it."""
    import numpy as np
    import torch

    from ..data.listing import list_folder, read_list
    from ..data.read_ahead import group, read_ahead
    from ..experiment.case import count_classes
    from ..experiment.loop import Item
    from ..models.labels import find_labels, truth_of

    if given.domain or given.corruption:
        raise ConfigError("--domain and --corruption are for data sets, not for a folder of images")
    path = Path(given.data)
    listing = read_list(path, given.root) if path.is_file() else list_folder(path)
    if not listing.names:
        raise DataError(f"no images in {given.data!r}")
    names = listing.names
    if listing.folders > 1:  # one class after the other is a hard order
        order = np.random.RandomState(given.seed).permutation(len(names))
        names = [names[i] for i in order]
        say(f"{len(names):,} images in {listing.folders:,} folders: shuffled, seed {given.seed}")
    if listing.ignored:
        say(f"{listing.ignored:,} other files, no images by their names: ignored")
    names = names[: given.limit]
    labels = find_labels(net, count_classes(net, how), given.labels)
    truth, why_not = truth_of(names, labels)
    if why_not:
        say(f"accuracy unknown: {why_not}")

    unreadable: list[tuple[str, str]] = []

    def items() -> Iterator[Item]:
        grouped = group(names, given.batch_size, len(names))
        for batch in read_ahead(grouped, listing.path, how.decoding(), given.workers):
            if not given.skip_unreadable:
                batch.check_readable("repair or remove the file, or give --skip-unreadable")
            unreadable.extend((batch.names[i], why) for i, why in sorted(batch.unreadable.items()))
            if not batch.kept:
                continue
            folders = [os.path.dirname(batch.names[i]) for i in batch.kept]
            y = torch.tensor([truth.get(folder, -1) for folder in folders]) if truth else None
            yield Item(how.apply(batch.pixels, given.device), y)

    return Images(items(), len(names), labels, unreadable)


def source_images(
    folder: Path, how: Preprocessing, given: Given
) -> Callable[[], Iterable[torch.Tensor]]:
    """Source images, read anew for every method that needs some."""
    from ..data.listing import list_folder
    from ..data.read_ahead import read_readable

    found = list_folder(folder)
    if not found.names:
        raise DataError(f"no images in --source {str(folder)!r}")

    def images() -> Iterator[torch.Tensor]:
        import numpy as np

        order = np.random.RandomState(0).permutation(len(found.names))
        names = [found.names[i] for i in order]
        size, workers = given.batch_size, given.workers
        for _, pixels in read_readable(names, found.path, how.decoding(), size, workers):
            yield how.apply(pixels, given.device)

    return images
