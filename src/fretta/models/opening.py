"""The model a user names on the command line, opened without trusting what lies beside it."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import ConfigError, WeightsError
from .cards import card_of, find_card, sha256
from .imagenet import PACKAGED
from .load import ASSETS, FORMS, list_sources, load, load_source

TRUSTED = ("cifar", "digits", "timm", "torchvision")  # a card may name a network of these


@dataclass(frozen=True)
class OpenedModel:
    """A network, the spec that builds it, and where its weights are."""

    net: nn.Module
    spec: str
    weights: str | None  # a file, the name of packaged weights, or None: the library's own
    num_classes: int | None = None  # as given, or as the card says

    def digest(self) -> str:
        """What identifies the weights; empty where there is no file."""
        if self.weights in PACKAGED:
            return str(self.weights)
        if self.weights is not None:
            return sha256(self.weights)
        if not self.spec.startswith("hf:"):
            return ""
        folder = Path(self.spec.removeprefix("hf:"))
        files = sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")])
        return hashlib.sha256("".join(map(sha256, files)).encode()).hexdigest()

    def as_case(self) -> dict[str, Any]:
        """The model of a case, as suites write it."""
        named = {"weights": self.weights, "num_classes": self.num_classes}
        return {"spec": self.spec, **{k: v for k, v in named.items() if v is not None}}


def open_model(
    model: str,
    weights: str | None = None,
    num_classes: int | None = None,
    pretrained: bool = False,
    root: str | os.PathLike[str] | None = None,
    untrained: bool = False,
) -> OpenedModel:
    """How every command opens its model.

    model       timm:NAME and its siblings, the name of a source model in the package, or a
                weights file with a card
    root        where weights files are looked for, besides here; None: FRETTA_DATA
    untrained   a network without weights will do
    """
    if ":" not in model and weights is None:
        return _from_card(model, num_classes, root)
    if weights is not None and weights not in PACKAGED:
        weights = str(find_weights(weights, root))
    library, _, name = model.partition(":")
    if library == "hf":
        check_shards(Path(name))
        trained = any(Path(name).glob("*.safetensors")) or any(Path(name).glob("*.bin"))
    else:
        trained = library not in TRUSTED  # a factory of the user's may load its own
    if weights is None and not (pretrained or trained or untrained):
        raise ConfigError(
            f"--model {model} without --weights is a network that was never trained; give a weights"
            " file (`fretta adapt --pretrained` takes the library's own)"
        )
    net = load(model, weights=weights, num_classes=num_classes, pretrained=pretrained)
    card = card_of(net)
    known = num_classes if num_classes is not None or card is None else card.num_classes
    return OpenedModel(net, model, weights, known)


def _from_card(
    model: str, num_classes: int | None, root: str | os.PathLike[str] | None
) -> OpenedModel:
    if model in list_sources():
        path = ASSETS / f"{model}.safetensors"
    else:
        try:
            path = find_weights(model, root)
        except ConfigError as error:
            raise ConfigError(
                f"model {model!r} is not understood: {error}; write {FORMS}, the name of a model"
                f" in the package ({', '.join(list_sources())}), or a weights file with its card"
            ) from error
    card = find_card(path)
    if card is not None and card.model.partition(":")[0] not in TRUSTED:
        # package.module:factory imports a module and calls what is in it
        raise WeightsError(
            f"the card of {str(path)!r} asks to import {card.model!r}, and a file must not choose"
            f" what code runs; if you want that, say it: --model {card.model} --weights {path}"
        )
    net, card = load_source(path)
    if num_classes not in (None, card.num_classes):
        raise ConfigError(
            f"--num-classes {num_classes}, but the card of {str(path)!r} says"
            f" {card.num_classes}: leave it out"
        )
    return OpenedModel(net, card.model, str(path), card.num_classes)


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


def check_shards(folder: Path) -> None:
    """An index of weights in several files may only name files of its own folder."""
    for index in sorted(folder.glob("*.index.json")):
        try:
            files = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
            strange = [f for f in files if not isinstance(f, str) or os.path.basename(f) != f]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise WeightsError(f"{str(index)!r} is not an index of weights: {error}") from error
        if strange:
            raise WeightsError(
                f"{str(index)!r} was refused: it asks for weights in {strange[0]!r}, which is not"
                " in its folder"
            )
