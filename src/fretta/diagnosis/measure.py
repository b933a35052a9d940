"""One pass over the images: everything that `Facts` holds. Memory does not grow with the stream,
but for 80 bytes an image that find near-duplicates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice

import torch
from torch import Tensor, nn

from ..adapter import Adapter
from ..errors import DataError, HeadError
from ..experiment.loop import share_frozen
from ..parts.norm import norm_layers
from ..parts.redundancy import redundancy
from ..prepare import SMALL_BATCH
from .facts import Facts, Files, Outputs, kind_of_reason
from .moments import Reference, Watch
from .pictures import ContactSheet, Moved, Prints

SOURCE_IMAGES = 2000


@dataclass(frozen=True)
class Pictures:
    """A batch: input of the model, and the pixels and names where they are known."""

    x: Tensor
    pixels: Tensor | None = None  # uint8 (n, channels, H, W)
    names: list[str] = field(default_factory=list)


class OutputSums:
    """What `Outputs` are made of."""

    def __init__(self) -> None:
        self.images = 0
        self.confidence = self.entropy = 0.0
        self.predicted = self.marginal = torch.zeros(0)
        self.redundancies: dict[int, list[float]] = {}  # by size of the batch

    def add(self, logits: Tensor, features: Tensor | None) -> None:
        p = logits.detach().double().cpu().softmax(1)
        n, classes = p.shape
        if not self.images:
            self.predicted, self.marginal = torch.zeros(2, classes, dtype=torch.float64)
        self.images += n
        self.confidence += float(p.amax(1).sum())
        self.entropy += float(torch.special.entr(p).sum())
        self.predicted = self.predicted + torch.bincount(p.argmax(1), minlength=classes)
        self.marginal = self.marginal + p.sum(0)
        if features is not None and features.dim() == 2 and n > 1:
            score = float(redundancy(features.float(), normalized=True))
            self.redundancies.setdefault(n, []).append(score)

    def result(self) -> Outputs:
        n = self.images
        # a smaller batch looks more redundant: only batches of the most frequent size count
        batch = max(self.redundancies, key=lambda b: b * len(self.redundancies[b]), default=0)
        scores = self.redundancies.get(batch, [])
        return Outputs(
            n,
            [int(c) for c in self.predicted],
            self.confidence / n,
            self.entropy / n,
            max(0.0, float(torch.special.entr(self.marginal / n).sum())),
            math.fsum(scores) / len(scores) if scores else None,
            batch,
        )


class Looking:
    """The model as it is, watched: its outputs, its features, the statistics of its layers."""

    def __init__(
        self, net: nn.Module, head: str | None, references: dict[str, Reference] | None = None
    ) -> None:
        self.adapter = Adapter(net, "source", head=head)
        self.watch = Watch(self.adapter.model.net, references)
        self.sums = OutputSums()
        self._headless: bool | None = None  # None: not looked for yet

    def __call__(self, x: Tensor) -> None:
        features: Tensor | None = None
        if self._headless is None:
            try:
                self.adapter.features(x[:2])  # finds the head, unwatched
                self._headless = False
            except HeadError:
                self._headless = True
        with self.watch.watching(len(x)):
            if self._headless:
                logits = self.adapter.predict(x)
            else:
                features, logits = self.adapter.features(x)
        self.sums.add(logits, features)


def measure(
    net: nn.Module,
    batches: Iterable[Pictures],
    *,
    source: Iterable[Tensor] | None = None,
    batch_size: int = 64,
    head: str | None = None,
    prior: list[float] | None = None,
    files: Callable[[], Files] | None = None,
    on_batch: Callable[[int], None] = lambda images: None,
) -> tuple[Facts, list[Moved]]:
    """The facts, and the images that moved most.

    files   called at the end: what is known of the files, without near-duplicates
    """
    before = _look_at_source(net, head, source) if source is not None else None
    references = None
    if before is not None and not before.watch.batch_norms:
        references = before.watch.measured()
    now = Looking(net, head, references)
    comparable = bool(now.watch.batch_norms or references)
    batch = Adapter(net, "bn") if now.watch.batch_norms else None
    batch_predicted = torch.zeros(0, dtype=torch.int64)
    prints, sheet = Prints(), ContactSheet()
    for item in batches:
        now(item.x)
        if batch is not None and len(item.x) >= SMALL_BATCH:
            predicted = batch(item.x).argmax(1).cpu()
            if not len(batch_predicted):
                share_frozen(batch, now.adapter.model.net)
                batch_predicted = torch.zeros(batch.classes or 0, dtype=torch.int64)
            batch_predicted += torch.bincount(predicted, minlength=len(batch_predicted))
        if item.pixels is not None:
            pixels = item.pixels.cpu()
            prints.add(item.names, pixels)
            distances = now.watch.distances_early() if comparable else None
            if distances is not None:
                sheet.add(item.names, pixels, distances)
        on_batch(now.sums.images)
    if not now.sums.images:
        raise DataError(_nothing_seen(files))
    duplicates, neighbors, groups = prints.duplicates()
    found = Files(now.sums.images) if files is None else files()
    found = replace(
        found, duplicates=duplicates, neighbors=neighbors, groups=groups, gray=prints.gray
    )
    facts = Facts(
        images=now.sums.images,
        batch_size=batch_size,
        batch_norms=now.watch.batch_norms,
        norms=len(norm_layers(net)),
        layers=now.watch.shifts() if comparable else [],
        outputs=now.sums.result(),
        batch_predicted=batch_predicted.tolist() if len(batch_predicted) else None,
        prior=prior,
        files=found if prints.names else None,
        source=None if before is None else before.sums.result(),
        source_layers=before.watch.shifts() if before and before.watch.batch_norms else [],
    )
    return facts, sheet.images()


def _look_at_source(net: nn.Module, head: str | None, source: Iterable[Tensor]) -> Looking:
    looking = Looking(net, head)
    for x in source:
        looking(x)
        if looking.sums.images >= SOURCE_IMAGES:
            break
    if not looking.sums.images:
        raise DataError("there is no readable source image; give others, or none")
    return looking


def _nothing_seen(files: Callable[[], Files] | None) -> str:
    unreadable = [] if files is None else files().unreadable
    if not unreadable:
        return "there is no image to look at; give one at least"
    reasons = list(dict.fromkeys(kind_of_reason(why) for _, why in islice(unreadable, 100)))
    return f"none of {len(unreadable):,} files can be read ({'; '.join(reasons[:3])})"
