"""What fretta sees in a model: its head, its norm layers, and which methods fit."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from .adapter import Adapter
from .errors import FrettaError, FrettaWarning, SmallBatchWarning
from .method import Need
from .methods import Source, find_method, list_methods
from .parts.norm import is_batch_norm, norm_layers


@dataclass
class Fit:
    """Whether one method can adapt the model, and what to know or do about it."""

    method: str
    fits: bool
    note: str = ""


@dataclass
class Inspection:
    """Everything `fretta check` prints."""

    model: str
    parameters: int
    classes: int
    norms: dict[str, int]  # type of norm layer -> how many
    batch_norms: int
    head: str | None = None
    features: int | None = None
    head_problem: str = ""
    fits: list[Fit] = field(default_factory=list)


def input_size(net: nn.Module) -> tuple[int, int, int]:
    """(C, H, W) as the model's own configuration says; 3×224×224 otherwise."""
    size = (getattr(net, "pretrained_cfg", None) or {}).get("input_size")
    if size is not None:
        return (int(size[0]), int(size[1]), int(size[2]))
    image = getattr(getattr(net, "config", None), "image_size", None)  # Hugging Face
    if isinstance(image, int):
        return (int(getattr(net.config, "num_channels", 3)), image, image)
    return (3, 224, 224)


def inspect(net: nn.Module, x: Tensor | None = None, head: str | None = None) -> Inspection:
    """Look at a model with one small batch (random by default); the model is not changed."""
    if x is None:
        x = torch.rand(2, *input_size(net), generator=torch.Generator().manual_seed(0))
    source = Adapter(net, Source(), head=head)
    classes = source(x).shape[1]
    layers = norm_layers(net)
    seen = Inspection(
        model=type(net).__name__,
        parameters=sum(p.numel() for p in net.parameters()),
        classes=classes,
        norms=dict(Counter(type(layer).__name__ for layer in layers.values())),
        batch_norms=sum(map(is_batch_norm, layers.values())),
    )
    try:
        source.model.locate_head(x, classes)
    except FrettaError as error:
        seen.head_problem = str(error)
    else:
        seen.head, seen.features = source.model.head_name, source.model.head_weight().shape[1]
    seen.fits = [_fit(key, net, x, seen) for key in list_methods()]
    return seen


def _fit(key: str, net: nn.Module, x: Tensor, seen: Inspection) -> Fit:
    """Try it: one adapter, with source images if it needs them, up to its first prediction."""
    needs = find_method(key).needs
    if Need.HEAD in needs and seen.head is None:
        return Fit(key, False, seen.head_problem)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            adapter = Adapter(net, find_method(key)(), head=seen.head, source=[x])
            adapter.predict(x)
        except FrettaError as error:
            return Fit(key, False, str(error))
    # the batch is an example: its size says nothing about the batches to come
    notes = [
        str(w.message)
        for w in caught
        if issubclass(w.category, FrettaWarning) and not issubclass(w.category, SmallBatchWarning)
    ]
    if Need.SOURCE in needs:
        notes.append("needs unlabeled source images")
    if adapter.adapted:
        notes.insert(0, f"adapts {len(adapter.adapted)} tensors")
    return Fit(key, True, "; ".join(notes))
