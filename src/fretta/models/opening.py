"""The model a user names on the command line, opened without trusting what lies beside it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import ConfigError
from .cards import card_of, sha256
from .imagenet import PACKAGED
from .load import TRUSTED, check_shards, find_model, find_weights, load


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
        found = find_model(model, None, num_classes, root)
        net = load(found.spec, found.weights)
        return OpenedModel(net, found.spec, found.weights, found.num_classes)
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
