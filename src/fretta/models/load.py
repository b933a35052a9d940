"""`load("timm:resnet18")` and its siblings."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import Any

from torch import nn

from ..compat import import_timm, import_torchvision
from ..errors import ConfigError, MissingExtraError, ModelError
from .weights import load_weights

FORMS = "timm:NAME, torchvision:NAME, hf:FOLDER or package.module:factory"


def load(
    spec: str,
    weights: str | os.PathLike[str] | None = None,
    num_classes: int | None = None,
    pretrained: bool = False,
) -> nn.Module:
    """A classifier in eval mode.

    spec          "timm:resnet18", "torchvision:resnet50", "hf:<folder>" with a config.json, or
                  "package.module:factory", a callable that returns a module
    weights       a .safetensors file, or a torch file that holds only tensors
    num_classes   size of the head; the library's own default if None
    pretrained    let timm or torchvision fetch their own weights (needs a network)
    """
    source, separator, name = spec.partition(":")
    if not separator or not name:
        raise ConfigError(f"model {spec!r} is not understood; write {FORMS}")
    builders = {"timm": _timm, "torchvision": _torchvision, "hf": _hugging_face}
    build = builders.get(source)
    model = (
        _factory(source, name, num_classes)
        if build is None
        else build(name, num_classes, pretrained)
    )
    if weights is not None:
        load_weights(model, weights)
    return model.eval()


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
    if importlib.util.find_spec("transformers") is None:
        raise MissingExtraError("transformers", "hf", "a Hugging Face model")
    if not (Path(folder) / "config.json").is_file():
        raise ConfigError(f"hf:{folder} needs a local folder with config.json; none found there")
    transformers = importlib.import_module("transformers")
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    if num_classes is not None:
        config.num_labels = num_classes
    auto = transformers.AutoModelForImageClassification
    has_weights = any(Path(folder).glob("*.safetensors"))
    model: nn.Module = (
        auto.from_pretrained(folder, config=config, local_files_only=True, use_safetensors=True)
        if has_weights
        else auto.from_config(config)
    )
    return model


def _factory(module: str, name: str, num_classes: int | None) -> nn.Module:
    try:
        factory: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"model '{module}:{name}': {error}; write {FORMS}") from error
    for part in name.split("."):
        if not hasattr(factory, part):
            raise ConfigError(f"model '{module}:{name}': {module!r} has no {part!r}")
        factory = getattr(factory, part)
    if not callable(factory):
        raise ConfigError(f"model '{module}:{name}' is a {type(factory).__name__}, not a callable")
    model = factory() if num_classes is None else factory(num_classes=num_classes)
    if not isinstance(model, nn.Module):
        raise ModelError(f"'{module}:{name}' returned a {type(model).__name__}, not a torch module")
    return model
