"""What an analysis looks at: a data set, a model, the methods, and one stream for all of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...adapter import Adapter
from ...data import Stream
from ...errors import ConfigError
from ...methods import find_method, list_methods
from ...prepare import predicted_classes
from ..case import Case
from ..loop import Item, Step, stream_through
from ..provenance import provenance
from ..suite import CaseEntry, open_entry

OnBatch = Callable[[int, int], None]  # (batches done, batches in total)


@dataclass(frozen=True)
class Setting:
    """As in a suite: `data` are name and options of open_dataset, `model` source= or spec=."""

    data: Mapping[str, Any] = field(default_factory=lambda: {"name": "digits"})
    model: Mapping[str, Any] = field(default_factory=lambda: {"source": "digits"})
    methods: Sequence[str] = ("source", "bn", "tent", "s-fret", "g-fret")
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)  # where a method has them
    root: str | None = None
    folder: str | None = None  # of class folders, if `data` is that
    source: Mapping[str, Any] | None = None  # source images, for methods that need some
    order: str = "continual"
    batch_size: int = 64
    seed: int = 0
    limit: int | None = 256  # images per domain
    device: str = "cpu"

    def __post_init__(self) -> None:
        if not self.methods or len(set(self.methods)) < len(self.methods):
            raise ConfigError(
                f"methods {list(self.methods)} cannot work; give some of"
                f" {', '.join(list_methods())}, each once"
            )
        known = {name for m in self.methods for name in find_method(m).field_names()}
        unknown = sorted(self.hyperparameters.keys() - known)
        if unknown:
            raise ConfigError(
                f"none of {', '.join(self.methods)} has the hyper-parameter {', '.join(unknown)}"
            )

    def case(self, data: Mapping[str, Any] | None = None) -> Case:
        """The model on the data set, or on `data` instead."""
        source = None if self.source is None else dict(self.source)
        entry = CaseEntry("", dict(data or self.data), dict(self.model), {}, source)
        case = open_entry(entry, self.root, {}, self.folder)
        case.device = torch.device(self.device)
        return case

    def adapters(self, case: Case) -> dict[str, Adapter]:
        """A new adapter for each method, with the hyper-parameters that it has."""
        adapters = {}
        for method in self.methods:
            fields = find_method(method).field_names()
            settings = {k: v for k, v in self.hyperparameters.items() if k in fields}
            adapters[method] = case.adapter(method, batch_size=self.batch_size, **settings)
        return adapters

    def stream(self, case: Case, limit: int | None = None) -> Stream:
        limit = self.limit if limit is None else limit
        return case.stream(self.order, seed=self.seed, batch_size=self.batch_size, limit=limit)

    def steps(
        self, case: Case, adapters: Mapping[str, Adapter], on_batch: OnBatch | None
    ) -> Iterator[tuple[Item, dict[str, Step]]]:
        """All adapters along one stream: every image is read and corrupted only once."""
        stream = self.stream(case)
        for item, steps in stream_through(adapters, case.items(stream)):
            yield item, steps
            if on_batch is not None:
                on_batch(item.number + 1, len(stream))

    def about(self, kind: str, title: str, case: Case) -> dict[str, Any]:
        """What every analysis says of itself."""
        return {
            "kind": kind,
            "title": f"{title}: {self.data['name']}, {case.spec}",
            "data": dict(self.data),
            "model": {**case.model, "weights_hash": case.weights_hash},
            "methods": list(self.methods),
            "hyperparameters": dict(self.hyperparameters),
            "order": self.order,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "limit": self.limit,
            "provenance": {
                **provenance(),
                "device": self.device,
                "threads": torch.get_num_threads(),
                "finished": int(time.time()),
            },
        }


def labels(item: Item) -> torch.Tensor:
    assert item.y is not None  # every batch of a stream has labels
    return item.y


def correct(item: Item, step: Step) -> torch.Tensor:
    """Which predictions of a batch are right, (n,)."""
    return predicted_classes(step.logits) == labels(item)


def finite(value: float, digits: int = 6) -> float | None:
    """A number of a model that diverged is no number: None, as in records."""
    return round(value, digits) if math.isfinite(value) else None
