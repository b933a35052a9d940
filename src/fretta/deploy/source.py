"""The user's model, opened without trusting what lies beside its weights."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from torch import nn

from ..errors import ConfigError, WeightsError
from ..models import load, load_source
from ..models.cards import find_card, sha256
from ..models.imagenet import PACKAGED
from ..models.load import ASSETS, list_sources

TRUSTED = ("cifar", "digits", "timm", "torchvision")  # a card may name a network of these


def open_model(
    model: str, weights: str | None, num_classes: int | None, pretrained: bool
) -> tuple[nn.Module, str, str | None]:
    """(network, its spec, the file its weights are in, if there is one).

    model   timm:NAME and its siblings, the name of a source model in the package, or a weights
            file with a card
    """
    if ":" not in model and weights is None:
        return _from_card(model)
    library, _, name = model.partition(":")
    if library == "hf":
        check_shards(Path(name))
        trained = any(Path(name).glob("*.safetensors")) or any(Path(name).glob("*.bin"))
    else:
        trained = library not in TRUSTED  # a factory of the user's may load its own
    if weights is None and not pretrained and not trained:
        raise ConfigError(
            f"--model {model} without --weights is a network that was never trained; give a weights"
            " file, or --pretrained for the library's own"
        )
    net = load(model, weights=weights, num_classes=num_classes, pretrained=pretrained)
    return net, model, weights if weights not in PACKAGED else None


def _from_card(model: str) -> tuple[nn.Module, str, str]:
    path = ASSETS / f"{model}.safetensors" if model in list_sources() else Path(model)
    card = find_card(path) if path.is_file() else None
    if card is not None and card.model.partition(":")[0] not in TRUSTED:
        # package.module:factory imports a module and calls what is in it
        raise WeightsError(
            f"the card of {str(path)!r} asks to import {card.model!r}, and a file must not choose"
            f" what code runs; if you want that, say it: --model {card.model} --weights {path}"
        )
    net, card = load_source(path)
    return net, card.model, str(path)


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


def digest_of(spec: str, path: str | None) -> str:
    """What identifies the weights; empty where there is no file."""
    if path is not None:
        return sha256(path)
    if not spec.startswith("hf:"):
        return ""
    folder = Path(spec.removeprefix("hf:"))
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")])
    return hashlib.sha256("".join(map(sha256, files)).encode()).hexdigest()
