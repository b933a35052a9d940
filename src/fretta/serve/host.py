"""All streams of one process: adapters that share the frozen weights of one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..experiment.case import Case
from .settings import Settings


@dataclass(frozen=True)
class Answer:
    """What is said about one image."""

    id: str
    stream: str
    label: str
    index: int
    confidence: float
    top5: list[dict[str, Any]]  # label, index, confidence; the best first
    spoke: str  # "adapted" or "source"
    batch: int  # number in the stream
    position: int  # in the batch
    health: dict[str, Any]  # of the batch

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class StreamHost:
    """The streams of one process; see docs/serve.md."""

    def __init__(self, settings: Settings, shard: int = 0, *, case: Case | None = None) -> None:
        self.settings, self.shard = settings, shard
        self.case = case or settings.open_case()
        self.classes = self.case.labels.names
        self.decoding = self.case.preprocessing.decoding(alpha=settings.alpha)

    def check_image(self, image: NDArray[np.uint8]) -> None:
        raise NotImplementedError

    def predict(
        self,
        name: str,
        images: Sequence[NDArray[np.uint8]] | Tensor,
        ids: Sequence[str] | None = None,
    ) -> list[Answer]:
        raise NotImplementedError

    def names(self) -> list[str]:
        raise NotImplementedError

    def overview(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def detail(self, name: str) -> dict[str, Any]:
        raise NotImplementedError

    def reset(self, name: str) -> dict[str, Any]:
        raise NotImplementedError

    def freeze(self, name: str) -> dict[str, Any]:
        raise NotImplementedError

    def resume(self, name: str) -> dict[str, Any]:
        raise NotImplementedError

    def feedback(self, name: str, labels: Mapping[str, str | int]) -> dict[str, Any]:
        raise NotImplementedError

    def metrics(self) -> dict[str, Any]:
        raise NotImplementedError

    def checkpoint(self, name: str | None = None) -> int:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
