"""Cards: what a weights file was trained on and expects, in JSON beside it.

`model.safetensors` has its card in `model.json`. The card says which network the tensors belong to,
the classes in label order, the preprocessing, and where the numbers came from.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._util import replace_file
from ..errors import ConfigError, FrettaWarning, WeightsError

FORMAT = "fretta-card/1"
TOLERANCE = 1e-4  # of mean and std; 0.485 written as 0.4850 is the same, 0.4914 is not


@dataclass(frozen=True)
class Card:
    """What to know about a weights file. Plain values; written and read as JSON."""

    model: str  # for `load`, such as "cifar:resnet20"
    num_classes: int
    classes: list[str]  # in label order; empty where the names are not known
    data: dict[str, Any]  # name, domains, number of images
    preprocessing: dict[str, Any]  # mean, std, size, ...: what Preprocessing.to_json gives
    accuracy: dict[str, float]  # share of images, by split: {"test": 0.98}
    seed: int | None  # None where it is not known
    training: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    sha256: str = ""  # of the weights file

    def __post_init__(self) -> None:
        if self.classes and len(self.classes) != self.num_classes:
            raise ConfigError(
                f"the card has num_classes={self.num_classes} but {len(self.classes)} class names"
            )

    def __repr__(self) -> str:
        scores = ", ".join(f"{split} {value:.1%}" for split, value in self.accuracy.items())
        trained = f"{self.num_classes} classes of {self.data.get('name', 'unknown data')}"
        return f"<Card of {self.model}: {trained}{f'; accuracy {scores}' if scores else ''}>"

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any], where: str = "the card") -> Card:
        given = {key: value for key, value in content.items() if key != "format"}
        unknown = sorted(given.keys() - _TYPES.keys())
        lacking = [f.name for f in fields(cls)[:7] if f.name not in given]
        if content.get("format") != FORMAT or unknown or lacking:
            raise WeightsError(
                f"{where} is not a card this version reads: format {content.get('format')!r} "
                f"(expected {FORMAT!r}), unknown keys {unknown}, missing keys {lacking}"
            )
        for name, value in given.items():
            if not isinstance(value, _TYPES[name]) or isinstance(value, bool):
                kind = getattr(_TYPES[name], "__name__", _TYPES[name])
                raise WeightsError(f"{where}: {name} is {value!r}, not a {kind}")
        return cls(**given)


_TYPES: dict[str, Any] = {
    **dict.fromkeys(("model", "sha256"), str),
    **dict.fromkeys(("data", "preprocessing", "accuracy", "training", "versions"), dict),
    "num_classes": int,
    "classes": list,
    "seed": int | None,
}


def card_path(path: str | os.PathLike[str]) -> Path:
    """Where the card of a weights file is: the same name, ending in .json."""
    return Path(path).with_suffix(".json")


def read_card(path: str | os.PathLike[str]) -> Card:
    """The card at `path`, which is the card itself or its weights file."""
    file = card_path(path)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WeightsError(
            f"no card at {str(file)!r}; `fretta train` writes one beside the weights, and "
            "fretta.models.write_card makes one for weights from elsewhere"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"the card {str(file)!r} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise WeightsError(f"the card {str(file)!r} holds a {type(content).__name__}, not a table")
    return Card.from_json(content, f"the card {str(file)!r}")


def write_card(path: str | os.PathLike[str], card: Card) -> None:
    """Write the card of the weights file `path`, at once or not at all."""
    text = json.dumps(card.to_json(), indent=2, ensure_ascii=False, allow_nan=False)
    replace_file(card_path(path), (text + "\n").encode())


def find_card(path: str | os.PathLike[str]) -> Card | None:
    """The card beside a weights file, checked against it; None if there is none.

    A .json that is no card (other tools leave such files beside weights) counts as none.
    """
    file = card_path(path)
    if Path(path).suffix == ".json" or not file.is_file():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or not str(content.get("format")).startswith("fretta-card/"):
        return None
    card = read_card(file)
    if card.sha256 and Path(path).is_file() and card.sha256 != sha256(path):
        raise WeightsError(
            f"the card {str(file)!r} names another SHA-256 than that of {str(path)!r}; fetch both"
            " again, or remove the card to load the weights without it"
        )
    return card


def sha256(path: str | os.PathLike[str]) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_state(state: Mapping[str, Any]) -> str:
    """SHA-256 of names, types, shapes and content of tensors."""
    found = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        if isinstance(tensor, Tensor):
            found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            content = tensor.detach().cpu().contiguous().reshape(-1)
            found.update(content.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def card_of(model: nn.Module) -> Card | None:
    """The card that was attached when the model was loaded."""
    card = getattr(model, "fretta_card", None)
    return card if isinstance(card, Card) else None


def check_card(
    card: Card,
    preprocessing: Any = None,
    classes: Sequence[str] | None = None,
    mismatch: str = "error",
) -> None:
    """Compare what a pipeline does with what the weights expect.

    preprocessing   a `Preprocessing`, or its values by name
    mismatch        "error", or "warn"

    mean, std and the class list decide what the logits mean: a difference is a ConfigError, or a
    warning with mismatch="warn". Size, fit and interpolation only cost accuracy: a warning.
    """
    if mismatch not in ("error", "warn"):
        raise ConfigError(f"mismatch={mismatch!r}; 'error' or 'warn' is expected")
    wrong: list[str] = []
    if preprocessing is not None:
        given = preprocessing if isinstance(preprocessing, Mapping) else preprocessing.to_json()
        expected = {k: v for k, v in card.preprocessing.items() if given.get(k) is not None}
        wrong += [
            f"{key} is {list(given[key])} where they were trained with {list(expected[key])}; use"
            " Preprocessing.from_json(card.preprocessing)"
            for key in ("mean", "std")
            if key in expected and not _close(given[key], expected[key])
        ]
        soft = [
            f"{key} is {given[key]!r} where the weights were trained with {expected[key]!r}"
            for key in ("size", "fit", "interpolation")
            if expected.get(key) is not None and given[key] != expected[key]
        ]
        if soft:
            text = f"preprocessing differs from that of {card.model}, and accuracy with it"
            warnings.warn(f"{text}: {'; '.join(soft)}", FrettaWarning, stacklevel=2)
    if classes is not None and list(classes) != card.classes:
        wrong += _wrong_classes(card, list(classes))
    text = f"the pipeline does not fit the weights of {card.model}: {'; '.join(wrong)}"
    if wrong and mismatch == "error":
        raise ConfigError(text)
    if wrong:
        warnings.warn(text, FrettaWarning, stacklevel=2)


def _close(given: Sequence[float], expected: Sequence[float]) -> bool:
    pairs = zip(given, expected, strict=False)
    return len(given) == len(expected) and all(abs(a - b) <= TOLERANCE for a, b in pairs)


def _wrong_classes(card: Card, given: list[str]) -> list[str]:
    if len(given) != card.num_classes:
        return [f"the data has {len(given)} classes, the weights {card.num_classes}"]
    different = [i for i, (a, b) in enumerate(zip(given, card.classes, strict=False)) if a != b]
    if not different:  # the names of the card are not known
        return []
    first = different[0]
    if sorted(given) == sorted(card.classes):
        return [
            f"the classes are in another order: label {first} is {given[first]!r} in the data and "
            f"{card.classes[first]!r} in the weights; open the data with classes=card.classes"
        ]
    listed = ", ".join(f"{i}: {given[i]!r} / {card.classes[i]!r}" for i in different[:4])
    return [f"{len(different)} of {len(given)} class names differ (data / weights): {listed}"]
