"""Find the model of a case on this machine, and say what decides its numbers."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from ..data import Dataset
from ..data.domain import ImageFiles
from ..errors import ConfigError
from ..models import load_source
from ..models.cards import Card, find_card, sha256
from ..models.imagenet import PACKAGED
from ..models.load import ASSETS, find_weights, list_sources
from ..models.preprocessing import Preprocessing


@dataclass(frozen=True)
class ModelFacts:
    """The model of a case: what goes into the Run, and what is of this machine."""

    run: dict[str, Any]  # spec, num_classes, head, preprocessing
    preprocessing: Preprocessing
    weights: str | None  # path, or name of packaged weights
    weights_hash: str


def model_facts(model: dict[str, Any], root: str | os.PathLike[str] | None) -> ModelFacts:
    """The model as a suite writes it: source=, or spec= and weights=.

    One-off commands have found out how images are prepared; they hand it over as `preprocessing`.
    """
    if "source" in model:
        given = sorted(model.keys() - {"source", "head"})
        if given:
            raise ConfigError(
                f"model: source= brings its own {given}; leave them out, or use spec="
            )
        shipped = model["source"] in list_sources()
        path = (
            ASSETS / f"{model['source']}.safetensors"
            if shipped
            else find_weights(model["source"], root)
        )
        _, card = load_source(path)
        return _facts(model, card.model, card, str(path), sha256(path))
    if "spec" not in model:
        raise ConfigError("model: give source= (weights with a card) or spec= (and weights=)")
    weights = model.get("weights")
    if weights is None or weights in PACKAGED:
        return _facts(model, model["spec"], None, weights, weights or "")
    path = find_weights(weights, root)
    return _facts(model, model["spec"], find_card(path), str(path), sha256(path))


def _facts(
    model: dict[str, Any], spec: str, card: Card | None, weights: str | None, weights_hash: str
) -> ModelFacts:
    how = model.get("preprocessing") or _stated(model, spec, card)
    run = {
        "spec": spec,
        "num_classes": model.get("num_classes", card.num_classes if card else None),
        "head": model.get("head"),
        "preprocessing": how.to_json(),
    }
    return ModelFacts(run, how, weights, weights_hash)


def _stated(model: dict[str, Any], spec: str, card: Card | None) -> Preprocessing:
    stated: dict[str, Any] = {k: model[k] for k in ("mean", "std", "size") if k in model}
    if not stated and card is None:
        raise ConfigError(
            f"model {spec!r}: the weights have no card, so say how images are preprocessed: mean,"
            " std, size"
        )
    known = dict(card.preprocessing) if card is not None else {}
    origin = "the suite" if stated else "the card"
    return Preprocessing.from_json({**known, **stated}, origin)


def check_fit(dataset: Dataset, model: dict[str, Any]) -> None:
    """The classes and pixels of the data are those the model takes."""
    classes = model["num_classes"]
    if classes is not None and classes != len(dataset.classes):
        raise ConfigError(
            f"the model has {classes} classes and {dataset.name} {len(dataset.classes)}; labels"
            " would not mean what the logits mean"
        )
    size = model["preprocessing"]["size"]
    shape = dataset.domains[0].read([0]).shape[1:3]
    if size is not None and shape != (size, size):
        raise ConfigError(
            f"the model takes {size}×{size} pixels and {dataset.name} gives {shape[1]}×{shape[0]};"
            f" write data = {{ ..., size = {size} }}"
        )


def as_read(dataset: Dataset, how: Preprocessing) -> Preprocessing:
    """What happens to the images of a data set: what the data says about reading files counts."""
    source = dataset.domains[0].source
    if not isinstance(source, ImageFiles):
        return how
    d = source.decoding
    read = replace(
        how, size=d.size, fit=d.fit, interpolation=d.interpolation, crop_ratio=d.crop_ratio
    )
    if read == how or how.size is None:
        return read
    return replace(read, origin=f"size, fit, interpolation: the data; mean, std: {how.origin}")
