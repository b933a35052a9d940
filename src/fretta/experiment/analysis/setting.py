"""What an analysis looks at: a data set, a model, the methods, and one stream for all of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...adapter import Adapter
from ...data import Batch, Dataset, Preprocessing, Stream, dataset_options, make_stream
from ...data.datasets import CLEAN, check_name
from ...data.digits import SEVERITY as DIGITS_SEVERITY
from ...errors import ConfigError
from ...methods import find_method, list_methods
from ..locate import ModelFacts, check_fit, model_facts
from ..provenance import provenance
from ..records import Job, Place, Run
from ..run import open_adapter, open_data, open_model

OnBatch = Callable[[int, int], None]  # (batches done, batches in total)


@dataclass(frozen=True)
class Setting:
    """As in a suite: `data` are name and options of open_dataset, `model` source= or spec=."""

    data: Mapping[str, Any] = field(default_factory=lambda: {"name": "digits"})
    model: Mapping[str, Any] = field(default_factory=lambda: {"source": "digits"})
    methods: Sequence[str] = ("source", "bn", "tent", "s-fret", "g-fret")
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)  # where a method has them
    root: str | None = None
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
        lost = sorted(self.hyperparameters.keys() - known)
        if lost:
            raise ConfigError(
                f"none of {', '.join(self.methods)} has the hyper-parameter {', '.join(lost)}"
            )

    # ---- data --------------------------------------------------------------------------------

    def dataset(self) -> Dataset:
        """The data as named, with whatever shift it has."""
        return open_data(dict(self.data), self.root)

    def clean(self) -> Dataset | None:
        """The same images without a corruption; None where the data set has none."""
        name = check_name(str(self.data["name"]))
        own = {k: v for k, v in self.data.items() if k not in ("corruption", "severity")}
        if name in CLEAN:
            shift = {"corruption": None} if name == "digits" else {}
            return open_data({**own, **shift}, self.root)
        return None

    def shifted(self, corruptions: Sequence[str], severity: float) -> Dataset:
        """The data under some corruptions at one severity."""
        name = check_name(str(self.data["name"]))
        own = {k: v for k, v in self.data.items() if k not in ("corruption", "severity")}
        if name == "digits":  # each with the constants that the digits are shifted by
            table = {c: _constants(c) for c in corruptions}
            own |= {"severity": {c: [severity, constants] for c, constants in table.items()}}
            return open_data({**own, "corruption": list(corruptions)}, self.root)
        if name in CLEAN:
            own |= {"corruption": list(corruptions), "severity": severity}
        elif {"domains", "severity"} <= set(dataset_options(name)):
            own |= {"domains": list(corruptions), "severity": severity}
        else:
            raise ConfigError(f"{name} has no severities; take one of {', '.join(CLEAN)}")
        return open_data(own, self.root)

    def stream(self, dataset: Dataset, limit: int | None = None) -> Stream:
        return make_stream(
            dataset,
            self.order,
            seed=self.seed,
            batch_size=self.batch_size,
            limit=self.limit if limit is None else limit,
        )

    # ---- model -------------------------------------------------------------------------------

    def subject(self, dataset: Dataset) -> Subject:
        """The model, checked against the data."""
        facts = model_facts(dict(self.model), self.root)
        check_fit(dataset, facts.run)
        return Subject(self, facts)


def _constants(corruption: str) -> str | None:
    own = DIGITS_SEVERITY.get(corruption)
    return own[1] if isinstance(own, tuple) else None


class Subject:
    """A model, and the adapters that start from it."""

    def __init__(self, setting: Setting, facts: ModelFacts) -> None:
        self.setting, self.facts, self.weights_hash = setting, facts.run, facts.weights_hash
        self.place = Place(setting.root, facts.weights)
        self.net, self.preprocessing = open_model(self._run("source"), facts.weights)
        self.net = self.net.to(setting.device)

    def _run(self, method: str) -> Run:
        s = self.setting
        settings = {k: v for k, v in s.hyperparameters.items() if k in _fields(method)}
        source = None if s.source is None else dict(s.source)
        return Run(
            *(dict(s.data), "", self.facts, self.weights_hash, method, settings, s.order, {}),
            *(s.batch_size, s.seed, {}, source),
        )

    def adapter(self, method: str) -> Adapter:
        """A fresh one; as in a run."""
        job = Job(self._run(method), self.place)
        return open_adapter(job, self.net, self.preprocessing, self.setting.device)

    def adapters(self) -> dict[str, Adapter]:
        return {method: self.adapter(method) for method in self.setting.methods}

    def about(self, kind: str, title: str) -> dict[str, Any]:
        """What every analysis says of itself."""
        s = self.setting
        return {
            "kind": kind,
            "title": title,
            "data": dict(s.data),
            "model": {**self.facts, "weights_hash": self.weights_hash},
            "methods": list(s.methods),
            "hyperparameters": dict(s.hyperparameters),
            "order": s.order,
            "batch_size": s.batch_size,
            "seed": s.seed,
            "limit": s.limit,
            "provenance": {
                **provenance(),
                "device": s.device,
                "threads": torch.get_num_threads(),
                "finished": int(time.time()),
            },
        }


def finite(value: float, digits: int = 6) -> float | None:
    """A number of a model that diverged is no number: None, as in records."""
    return round(value, digits) if math.isfinite(value) else None


def _fields(method: str) -> list[str]:
    return find_method(method).field_names()


def in_step(
    stream: Stream,
    adapters: Mapping[str, Adapter],
    preprocessing: Preprocessing,
    device: str,
    on_batch: OnBatch | None = None,
) -> Iterator[tuple[Batch, Tensor]]:
    """Batches for several adapters at once: every image is read and corrupted only once."""
    for batch in stream:
        if batch.reset:
            for adapter in adapters.values():
                adapter.reset()
        yield batch, preprocessing.apply(batch.x, device)
        if on_batch is not None:
            on_batch(batch.number + 1, len(stream))
