"""Names of classes: from a file, from the model itself, or plain numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import ConfigError
from .cards import card_of

LARGEST = 1 << 24  # bytes of a label file
SHOWN = 5  # classes that a message names


@dataclass(frozen=True)
class Labels:
    """A name for each class, where the names come from, and other names folders may have."""

    names: list[str]
    origin: str
    known: bool = True  # False: the names are just numbers
    aliases: list[str] = field(default_factory=list)  # WordNet ids of ImageNet

    def of_folder(self) -> dict[str, int]:
        """Folder name -> class, where the names are known."""
        return self.by_name() if self.known else {}

    def by_name(self) -> dict[str, int]:
        """Name in lower case -> class. Names that would mean two classes are left out."""
        found: dict[str, int] = {}
        twice: set[str] = set()
        for names in (self.names, self.aliases):
            for number, name in enumerate(names):
                key = name.casefold()
                if found.setdefault(key, number) != number:
                    twice.add(key)
        return {key: number for key, number in found.items() if key not in twice}


def find_labels(net: nn.Module, classes: int, file: Path | None) -> Labels:
    """The labels of a model with that many classes."""
    if file is not None:
        names = read_labels(file)
        if len(names) != classes:
            raise ConfigError(
                f"{str(file)!r} names {len(names)} classes, the model has {classes}; labels must be"
                " in the order of the model's outputs, one for each"
            )
        return Labels(names, f"the file {file.name}")
    card = card_of(net)
    if card is not None and len(card.classes) == classes:
        return Labels(list(card.classes), "the card of the weights")
    config = getattr(getattr(net, "config", None), "id2label", None)
    if isinstance(config, Mapping) and len(config) == classes:
        names = _by_number(config, "the model's config")
        if not all(name == f"LABEL_{i}" for i, name in enumerate(names)):  # HF's placeholder
            return Labels(names, "the config of the model")
    return _timm_labels(net, classes) or Labels(
        [str(i) for i in range(classes)], "none known: class numbers", known=False
    )


def _timm_labels(net: nn.Module, classes: int) -> Labels | None:
    facts = getattr(net, "pretrained_cfg", None) or {}
    names = facts.get("label_names")
    if isinstance(names, Sequence) and len(names) == classes:
        return Labels([str(name) for name in names], "the model's pretrained_cfg")
    if classes != 1000 or facts.get("num_classes") != 1000:
        return None
    from timm.data import ImageNetInfo

    info = ImageNetInfo("imagenet-1k")
    return Labels(
        [info.index_to_description(i) for i in range(classes)],
        "ImageNet-1k, as timm has them (the head has 1000 outputs); --labels gives others",
        aliases=[info.index_to_label_name(i) for i in range(classes)],
    )


def read_labels(file: Path) -> list[str]:
    """One name per line, a JSON list, {"0": "cat"}, or a config.json with id2label."""
    try:
        if file.stat().st_size > LARGEST:
            raise ConfigError(f"{str(file)!r} has more than 16 MB; that is no list of labels")
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the labels {str(file)!r}: {error}") from error
    if file.suffix.lower() != ".json" and not text.lstrip().startswith(("{", "[")):
        return _checked([line.strip() for line in text.split("\n")], file)
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{str(file)!r} is not JSON: {error}") from error
    if isinstance(content, dict) and isinstance(content.get("id2label"), dict):
        content = content["id2label"]
    if isinstance(content, dict):
        return _checked(_by_number(content, repr(str(file))), file)
    if isinstance(content, list) and all(isinstance(name, str) for name in content):
        return _checked(content, file)
    raise ConfigError(
        f"{str(file)!r} holds no labels: a list of names, {{number: name}} or id2label is expected"
    )


def _by_number(content: Mapping[Any, Any], where: str) -> list[str]:
    try:
        numbered = {int(key): str(value) for key, value in content.items()}
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{where}: labels are {{number: name}}; {next(iter(content), None)!r} is no number"
        ) from error
    if sorted(numbered) != list(range(len(content))):
        raise ConfigError(f"{where}: the numbers of the labels are not 0 to {len(content) - 1}")
    return [numbered[i] for i in range(len(numbered))]


def _checked(names: Iterable[str], file: Path) -> list[str]:
    found = list(names)
    while found and not found[-1].strip():
        found.pop()
    blank = [number for number, name in enumerate(found, 1) if not name.strip()]
    if not found or blank:
        raise ConfigError(
            f"{str(file)!r}: line {blank[0] if blank else 1} has no name; one name per class is"
            " expected"
        )
    return found


def named_by_folders(labels: Labels, folders: Iterable[str]) -> Labels:
    """The labels of a model; where it names no classes, those of as many folders of images."""
    names = sorted({os.path.basename(folder) for folder in folders})
    if labels.known or "" in names or len(names) != len(labels.names) or not _in_order(names):
        return labels
    return Labels(names, "the folders, sorted as torchvision's ImageFolder does; --labels: others")


def _in_order(names: list[str]) -> bool:
    """Numbers may be meant in another order than that of their characters: 2, 10 or 10, 2."""
    numbers = [int(name) for name in names if name.isdecimal()]
    return numbers == sorted(numbers)


def truth_of(folders: Iterable[str], labels: Labels) -> tuple[dict[str, int], str]:
    """(folder -> class, why not) if the folders that hold images are named as the classes.

    The folder that counts is the one an image is in. All of them must be classes: numbered
    folders that happen to be called like some classes say nothing.
    """
    folders = sorted(folders)
    if not folders or folders == [""]:
        return {}, ""
    classes = len(labels.names)
    if not labels.known:
        return {}, (
            f"the model does not name its {classes:,} classes, and {len(folders):,} folders do not"
            " tell their order; write the names into a file, one per line in the order of the"
            " model's outputs, and give it: --labels FILE"
        )
    known = labels.of_folder()
    found = {f: known.get(os.path.basename(f).casefold()) for f in folders}
    strange = [f for f, number in found.items() if number is None]
    if strange:
        return {}, (
            f"{len(strange)} of {len(folders)} folders are not named as a class, such as"
            f" {os.path.basename(strange[0])!r}; the classes are"
            f" {', '.join(map(repr, labels.names[:SHOWN]))}{', ...' if classes > SHOWN else ''}"
            " (--labels FILE gives other names)"
        )
    return {f: number for f, number in found.items() if number is not None}, ""
