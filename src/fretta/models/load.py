"""Models by name: `load("timm:resnet18")` and its siblings."""

from __future__ import annotations

import difflib
import importlib
import json
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from .._util import check_interrupt, import_object
from ..compat import import_timm, import_torchvision, import_transformers
from ..errors import ConfigError, FrettaWarning, ModelError, WeightsError
from .cards import Card, card_path, find_card
from .cifar import small_network
from .imagenet import PACKAGED, check_packaged, load_packaged
from .weights import head_size, load_state, load_weights, own_names, read_weights

FORMS = (
    "cifar:NAME, digits:resnet8, timm:NAME, torchvision:NAME, hf:FOLDER or package.module:factory"
)
ASSETS = Path(__file__).parent.parent / "assets"  # weights and cards in the package
TRUSTED = ("cifar", "digits", "timm", "torchvision")  # a card may name a network of these


# ---- finding -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FoundModel:
    """What builds a model, before anything is built."""

    spec: str
    weights: str | None  # a file, the name of packaged weights, or None
    num_classes: int | None  # as given, or as the card says
    card: Card | None


def find_model(
    model: str,
    weights: str | None = None,
    num_classes: int | None = None,
    root: str | os.PathLike[str] | None = None,
    trust: bool = False,
) -> FoundModel:
    """The model a user names, without loading it.

    model   timm:NAME and its siblings, a source model of the package, or a weights file with card
    root    where weights files are looked for, besides here; None: FRETTA_DATA
    trust   the card of a weights file may name any `package.module:factory`
    """
    if ":" in model or weights is not None:
        if weights is None or weights in PACKAGED:
            return FoundModel(model, weights, num_classes, None)
        path = find_weights(weights, root)
        card = find_card(path)
        known = card.num_classes if card is not None and num_classes is None else num_classes
        return FoundModel(model, str(path), known, card)
    path = ASSETS / f"{model}.safetensors"
    if model not in list_sources():
        try:
            path = find_weights(model, root)
        except ConfigError as error:
            if Path(model).suffix:  # a file was meant
                raise
            raise ConfigError(
                f"model {model!r} is not understood: {error}; write {FORMS}, the name of a model"
                f" in the package ({', '.join(list_sources())}), or a weights file with its card"
            ) from error
    card = _card_beside(path)
    if not trust and card.model.partition(":")[0] not in TRUSTED:
        # package.module:factory imports a module and calls what is in it
        raise WeightsError(
            f"the card of {str(path)!r} asks to import {card.model!r}, and a file must not choose"
            f" what code runs; if you want that, say it: --model {card.model} --weights {path}"
        )
    _check_classes(card, path, num_classes)
    return FoundModel(card.model, str(path), card.num_classes, card)


def find_weights(name: str | os.PathLike[str], root: str | os.PathLike[str] | None = None) -> Path:
    """A weights file: here or below the data root, or in a folder `weights` of either."""
    base = os.fspath(root) if root is not None else os.environ.get("FRETTA_DATA")
    places = [Path(name)]
    if not Path(name).is_absolute():
        places.append(Path("weights", name))
        places += [Path(base, name), Path(base, "weights", name)] if base else []
    for place in places:
        if place.is_file():
            return place
    hint = "" if base else "; FRETTA_DATA is not set"
    raise ConfigError(
        f"no weights file {str(name)!r}; looked for {', '.join(map(str, places))}{hint}"
    )


def list_sources() -> list[str]:
    """Names of the source models in the package."""
    return sorted(path.stem for path in ASSETS.glob("*.safetensors"))


def _card_beside(path: Path) -> Card:
    card = find_card(path)
    if card is None:
        raise WeightsError(
            f"{str(path)!r} has no card ({card_path(path).name}) beside it, so which network it "
            "belongs to is unknown; name the network and give the file as weights="
        )
    return card


def _check_classes(card: Card, path: str | os.PathLike[str], num_classes: int | None) -> None:
    if num_classes not in (None, card.num_classes):
        raise ConfigError(
            f"num_classes={num_classes}, but the card of {os.fspath(path)!r} says"
            f" {card.num_classes}: leave it out"
        )


# ---- loading -------------------------------------------------------------------------------------


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
                  that an installed package has: "efficientnet-lite0" (extra `imagenet`)
    num_classes   size of the head; if None, what the card beside the weights says, for timm and
                  torchvision the size in the weights, else the library's own default
    pretrained    let timm or torchvision fetch their own weights (needs a network)

    A card beside the weights is checked against them and attached as `model.fretta_card`.
    """
    packaged = str(weights) in PACKAGED
    if packaged:
        check_packaged(str(weights), spec)
    card = None if weights is None or packaged else find_card(weights)
    if card is not None and weights is not None:
        if card.model != spec:
            warnings.warn(
                f"the card of {str(weights)!r} says {card.model}, not {spec}; networks with equal "
                "tensors can still compute different things",
                FrettaWarning,
                stacklevel=2,
            )
        _check_classes(card, weights, num_classes)
        num_classes = card.num_classes
    model: Any = build(spec, num_classes, pretrained).eval()
    if packaged:
        card = load_packaged(str(weights), model)
    elif weights is not None:
        state = own_names(read_weights(weights), model)
        if num_classes is None and spec.partition(":")[0] in ("timm", "torchvision"):
            found = head_size(model, state)
            model = model if found is None else build(spec, found).eval()
        load_state(model, state, repr(str(weights)))
    if card is not None:
        model.fretta_card = card
    loaded: nn.Module = model
    return loaded


def load_source(path_or_name: str | os.PathLike[str]) -> tuple[nn.Module, Card]:
    """A source model and its card from a weights file alone, or by name: "digits" is shipped."""
    name = os.fspath(path_or_name)
    path = ASSETS / f"{name}.safetensors" if name in list_sources() else Path(name)
    if not path.is_file():
        raise WeightsError(
            f"no source model {name!r}: no such file, and the package ships "
            f"{', '.join(list_sources())}"
        )
    card = _card_beside(path)
    return load(card.model, weights=path), card


def build(spec: str, num_classes: int | None = None, pretrained: bool = False) -> nn.Module:
    """The network `spec` names, with fresh weights unless pretrained."""
    library, separator, name = spec.partition(":")
    if not separator or not name:
        raise ConfigError(f"model {spec!r} is not understood; write {FORMS}")
    if library in ("cifar", "digits"):
        if pretrained:
            raise ConfigError(f"{spec} has no weights to fetch; train it, or pass weights=")
        return small_network(spec, num_classes)
    builders = {"timm": _timm, "torchvision": _torchvision, "hf": _hugging_face}
    if library in builders:
        return builders[library](name, num_classes, pretrained)
    return _factory(library, name, num_classes)


def _timm(name: str, num_classes: int | None, pretrained: bool) -> nn.Module:
    timm = import_timm()
    if not timm.is_model(name):
        raise ConfigError(_unknown("timm", name, timm.list_models()))
    model: nn.Module = timm.create_model(name, pretrained, **_head(num_classes))
    return model


def _unknown(library: str, name: str, known: list[str]) -> str:
    close = [k for k in known if name in k][:5] or difflib.get_close_matches(name, known, 5, 0.5)
    near = f"near it are {', '.join(close)}" if close else f"see {library}'s list_models()"
    return f"{library} has no model {name!r}; {near}"


def _head(num_classes: int | None) -> dict[str, int]:
    return {} if num_classes is None else {"num_classes": num_classes}


def _torchvision(name: str, num_classes: int | None, pretrained: bool) -> nn.Module:
    import_torchvision()
    models = importlib.import_module("torchvision.models")
    if name not in models.list_models():
        raise ConfigError(_unknown("torchvision", name, models.list_models()))
    weights = "DEFAULT" if pretrained else None
    model: nn.Module = models.get_model(name, weights=weights, **_head(num_classes))
    return model


def _hugging_face(folder: str, num_classes: int | None, pretrained: bool) -> nn.Module:
    """From a local folder: its config.json, and its weights if there are any."""
    transformers = import_transformers()
    if not (Path(folder) / "config.json").is_file():
        raise ConfigError(f"hf:{folder} needs a local folder with config.json; none found there")
    check_shards(Path(folder))
    local = {"local_files_only": True, "trust_remote_code": False}  # else it asks on the terminal
    try:
        config = transformers.AutoConfig.from_pretrained(folder, **local)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, ImportError) as error:
        raise ConfigError(
            f"the config.json of hf:{folder} cannot be used (code that comes with a model is never"
            f" run): {error}"
        ) from error
    if num_classes is not None:
        config.num_labels = num_classes
    auto = transformers.AutoModelForImageClassification
    if any(Path(folder).glob("*.safetensors")):
        try:
            model: nn.Module = auto.from_pretrained(
                folder, config=config, use_safetensors=True, **local
            )
        except RuntimeError as error:
            head = "" if num_classes is None else f" with num_classes={num_classes}"
            raise WeightsError(f"the weights in hf:{folder} do not fit its config{head}") from error
        return model
    model = auto.from_config(config)
    if (Path(folder) / "pytorch_model.bin").is_file():  # restricted to tensors, as any torch file
        load_weights(model, Path(folder) / "pytorch_model.bin")
    elif pretrained:
        raise WeightsError(f"hf:{folder} has no weights, so pretrained=True cannot work")
    return model


def check_shards(folder: Path) -> None:
    """An index of weights in several files may only name files of its own folder."""
    for index in sorted(folder.glob("*.index.json")):
        try:
            files = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
            strange = [f for f in files if not isinstance(f, str) or os.path.basename(f) != f]
        except (
            *(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError),
        ) as error:
            raise WeightsError(f"{str(index)!r} is not an index of weights: {error}") from error
        if strange:
            raise WeightsError(
                f"{str(index)!r} was refused: it asks for weights in {strange[0]!r}, which is not"
                " in its folder"
            )


def _factory(module: str, name: str, num_classes: int | None) -> nn.Module:
    factory = import_object(f"{module}:{name}", "model")
    if not callable(factory) or isinstance(factory, nn.Module):
        raise ConfigError(
            f"model '{module}:{name}' is a {type(factory).__name__}; a function or class that makes"
            " the network is expected"
        )
    try:
        model = factory(**_head(num_classes))
    except Exception as error:  # of the user's
        check_interrupt()
        given = "no argument" if num_classes is None else f"num_classes={num_classes}"
        raise ModelError(
            f"model '{module}:{name}' called with {given}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(model, nn.Module):
        raise ModelError(f"'{module}:{name}' returned a {type(model).__name__}, not a torch module")
    return model
