"""A small network behind a host, and batches of decoded images."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import fretta
from fretta.experiment.case import Case
from fretta.models.preprocessing import Preprocessing
from fretta.serve.host import Answer, StreamHost
from fretta.serve.settings import Settings
from fretta.state import capture
from nets import SIZE, build

Pixels = list[NDArray[np.uint8]]


def a_case(net: nn.Module | None = None) -> Case:
    return Case("nets:ResNetLike", Preprocessing(size=SIZE), loaded=net or build("resnet-like"))


def a_host(case: Case | None = None, **settings: Any) -> StreamHost:
    values: dict[str, Any] = {"model": "nets:ResNetLike", "device": "cpu", "method": "tent"}
    return StreamHost(Settings(**{**values, **settings}), case=case or a_case())


def pixels(*sizes: int, seed: int = 0) -> list[Pixels]:
    """One list of images for each batch."""
    random = np.random.RandomState(seed)
    shape = (SIZE, SIZE, 3)
    return [[random.randint(0, 256, shape).astype(np.uint8) for _ in range(n)] for n in sizes]


def as_input(images: Pixels) -> Tensor:
    """By other words than the host's."""
    planes = [torch.tensor(image).movedim(2, 0) for image in images]
    return Preprocessing(size=SIZE).apply(torch.stack(planes).contiguous())


def adapted(net: nn.Module, stream: list[Pixels], method: str, **options: Any) -> list[Tensor]:
    """What `fretta.adapt` predicts along the batches."""
    adapter = fretta.adapt(net, method, **options)
    return [adapter(as_input(images)).softmax(1) for images in stream]


def shares(answers: list[Answer]) -> Tensor:
    """The whole prediction of each image: there are five classes."""
    found = torch.zeros(len(answers), len(answers[0].top5))
    for row, answer in zip(found, answers, strict=True):
        for each in answer.top5:
            row[each["index"]] = each["confidence"]
    return found


def state_of(host: StreamHost, name: str) -> Any:
    """All that a stream learned, to compare."""
    return capture(host._streams[name].state())


def same(a: Any, b: Any) -> bool:
    """Bit for bit."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)
