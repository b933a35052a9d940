"""Find the model of a case on this machine, and say what decides its numbers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .errors import ConfigError
from .models import load_source
from .models.cards import Card, find_card, sha256
from .models.imagenet import PACKAGED
from .models.load import ASSETS, list_sources
from .streams import Dataset, Preprocessing


def model_facts(
    model: dict[str, Any], root: str | os.PathLike[str] | None
) -> tuple[dict[str, Any], str | None, str]:
    """(what goes into the Run, path or name of the weights here, hash of the weights)."""
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
        return _facts(model, card.model, card), str(path), sha256(path)
    if "spec" not in model:
        raise ConfigError("model: give source= (weights with a card) or spec= (and weights=)")
    weights = model.get("weights")
    if weights is None:
        return _facts(model, model["spec"], None), None, ""
    if weights in PACKAGED:
        return _facts(model, model["spec"], None), weights, weights
    path = find_weights(weights, root)
    return _facts(model, model["spec"], find_card(path)), str(path), sha256(path)


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


def find_weights(name: str | os.PathLike[str], root: str | os.PathLike[str] | None) -> Path:
    """A weights file: as given, or below the data root (also in its folder `weights`)."""
    base = os.fspath(root) if root is not None else os.environ.get("FRETTA_DATA")
    places = [Path(name)]
    if base and not Path(name).is_absolute():
        places += [Path(base) / name, Path(base) / "weights" / name]
    for place in places:
        if place.is_file():
            return place
    looked = ", ".join(str(p) for p in places)
    hint = "" if base else "; FRETTA_DATA is not set"
    raise ConfigError(f"no weights file {str(name)!r}; looked for {looked}{hint}")


def _facts(model: dict[str, Any], spec: str, card: Card | None) -> dict[str, Any]:
    stated: dict[str, Any] = {k: model[k] for k in ("mean", "std", "size") if k in model}
    if not stated and card is None:
        raise ConfigError(
            f"model {spec!r}: the weights have no card, so say how images are preprocessed: mean,"
            " std, size"
        )
    known = dict(card.preprocessing) if card is not None else {}
    preprocessing = Preprocessing.from_json({**known, **stated})
    return {
        "spec": spec,
        "num_classes": model.get("num_classes", card.num_classes if card else None),
        "head": model.get("head"),
        "preprocessing": preprocessing.to_json(),
    }
