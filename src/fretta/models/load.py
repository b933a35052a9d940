"""`load("timm:resnet18")` and its siblings."""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from pathlib import Path
from typing import Any

from torch import nn

from .._util import import_object
from ..compat import import_timm, import_torchvision, import_transformers
from ..errors import ConfigError, FrettaWarning, ModelError, WeightsError
from .cards import Card, attach, card_path, find_card
from .cifar import small_network
from .imagenet import PACKAGED, check_packaged, load_packaged
from .weights import load_weights

FORMS = (
    "cifar:NAME, digits:resnet8, timm:NAME, torchvision:NAME, hf:FOLDER or package.module:factory"
)
ASSETS = Path(__file__).parent.parent / "assets"  # weights and cards in the package


def load(
    spec: str,
    weights: str | os.PathLike[str] | None = None,
    num_classes: int | None = None,
    pretrained: bool = False,
) -> nn.Module:
    """A classifier in eval mode.

    spec          "cifar:resnet20", "timm:resnet18", "torchvision:resnet50", "hf:<folder>" with a
                  config.json, or "package.module:factory", a callable that returns a module
    weights       a .safetensors file, a torch file that holds only tensors, or the name of weights
                  that an installed package carries: "efficientnet-lite0" (extra `imagenet`)
    num_classes   size of the head; if None, what the card beside the weights says, else the
                  library's own default
    pretrained    let timm or torchvision fetch their own weights (needs a network)

    A card beside the weights is checked against them and attached as `model.fretta_card`.
    """
    packaged = str(weights) if str(weights) in PACKAGED else None
    if packaged is not None:
        check_packaged(packaged, spec)
    card = None if weights is None or packaged is not None else find_card(weights)
    if card is not None:
        num_classes = _classes(card, spec, weights, num_classes)
    model = build(spec, num_classes, pretrained)
    if packaged is not None:
        card = load_packaged(packaged, model)
    elif weights is not None:
        load_weights(model, weights)
    if card is not None:
        attach(model, card)
    return model.eval()


def load_source(path_or_name: str | os.PathLike[str]) -> tuple[nn.Module, Card]:
    """A source model and its card from a weights file alone, or by name: "digits" is shipped."""
    shipped = ASSETS / f"{path_or_name}.safetensors"
    path = shipped if str(path_or_name) in list_sources() else Path(path_or_name)
    if not path.is_file():
        raise WeightsError(
            f"no source model {str(path_or_name)!r}: no such file, and the package ships "
            f"{', '.join(list_sources())}"
        )
    card = find_card(path)
    if card is None:
        raise WeightsError(
            f"{str(path)!r} has no card ({card_path(path).name}) beside it, so which network it "
            "belongs to is unknown; use fretta.models.load(spec, weights=...)"
        )
    return load(card.model, weights=path), card


def list_sources() -> list[str]:
    """Names of the source models in the package."""
    return sorted(path.stem for path in ASSETS.glob("*.safetensors"))


def _classes(
    card: Card, spec: str, weights: str | os.PathLike[str] | None, num_classes: int | None
) -> int:
    if card.model != spec:
        warnings.warn(
            f"the card of {str(weights)!r} says {card.model}, not {spec}; networks with equal "
            "tensors can still compute different things",
            FrettaWarning,
            stacklevel=3,
        )
    if num_classes not in (None, card.num_classes):
        raise ConfigError(
            f"num_classes={num_classes}, but the card of {str(weights)!r} says "
            f"{card.num_classes}: leave it out"
        )
    return card.num_classes


def build(spec: str, num_classes: int | None = None, pretrained: bool = False) -> nn.Module:
    """The network `spec` names, with fresh weights unless pretrained."""
    source, separator, name = spec.partition(":")
    if not separator or not name:
        raise ConfigError(f"model {spec!r} is not understood; write {FORMS}")
    builders = {
        "cifar": _cifar,
        "digits": _digits,
        "timm": _timm,
        "torchvision": _torchvision,
        "hf": _hugging_face,
    }
    builder = builders.get(source)
    if builder is None:
        return _factory(source, name, num_classes)
    return builder(name, num_classes, pretrained)


def _cifar(name: str, num_classes: int | None, pretrained: bool) -> nn.Module:
    return _small(f"cifar:{name}", num_classes, pretrained)


def _digits(name: str, num_classes: int | None, pretrained: bool) -> nn.Module:
    return _small(f"digits:{name}", num_classes, pretrained)


def _small(spec: str, num_classes: int | None, pretrained: bool) -> nn.Module:
    if pretrained:
        raise ConfigError(
            f"{spec} has no weights to fetch; train it (fretta.experiment.train) or pass weights="
        )
    return small_network(spec, num_classes)


def _timm(name: str, num_classes: int | None, pretrained: bool) -> nn.Module:
    timm = import_timm()
    if not timm.is_model(name):
        close = timm.list_models(f"*{name}*")[:5]
        raise ConfigError(
            f"timm has no model {name!r}; near it are {close or 'none: see timm.list_models()'}"
        )
    options: dict[str, Any] = {} if num_classes is None else {"num_classes": num_classes}
    model: nn.Module = timm.create_model(name, pretrained=pretrained, **options)
    return model


def _torchvision(name: str, num_classes: int | None, pretrained: bool) -> nn.Module:
    import_torchvision()
    models = importlib.import_module("torchvision.models")
    if name not in models.list_models():
        close = models.list_models(include=f"*{name}*")[:5]
        raise ConfigError(f"torchvision has no model {name!r}; near it are {close or 'none'}")
    options: dict[str, Any] = {} if num_classes is None else {"num_classes": num_classes}
    model: nn.Module = models.get_model(name, weights="DEFAULT" if pretrained else None, **options)
    return model


def _hugging_face(folder: str, num_classes: int | None, pretrained: bool) -> nn.Module:
    """From a local folder: its config.json, and its weights if there are any."""
    transformers = import_transformers()
    if not (Path(folder) / "config.json").is_file():
        raise ConfigError(f"hf:{folder} needs a local folder with config.json; none found there")
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    if num_classes is not None:
        config.num_labels = num_classes
    auto = transformers.AutoModelForImageClassification
    if any(Path(folder).glob("*.safetensors")):
        try:
            model: nn.Module = auto.from_pretrained(
                folder, config=config, local_files_only=True, use_safetensors=True
            )
        except RuntimeError as error:
            raise WeightsError(
                f"the weights in hf:{folder} do not fit its config"
                + (f" with num_classes={num_classes}" if num_classes is not None else "")
            ) from error
        return model
    model = auto.from_config(config)
    if (Path(folder) / "pytorch_model.bin").is_file():  # restricted to tensors, as any torch file
        load_weights(model, Path(folder) / "pytorch_model.bin")
    elif pretrained:
        raise WeightsError(f"hf:{folder} was asked for pretrained weights, but the folder has none")
    return model


def _factory(module: str, name: str, num_classes: int | None) -> nn.Module:
    factory = import_object(f"{module}:{name}", "model")
    if not callable(factory):
        raise ConfigError(f"model '{module}:{name}' is a {type(factory).__name__}, not a callable")
    model = factory() if num_classes is None else factory(num_classes=num_classes)
    if not isinstance(model, nn.Module):
        raise ModelError(f"'{module}:{name}' returned a {type(model).__name__}, not a torch module")
    return model
