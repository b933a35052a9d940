"""The registry: `open_dataset(name, root, **options)`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..models.preprocessing import Preprocessing
from . import digits
from .cifar import open_cifar, open_cifar_c, open_cifar_c_lt
from .digits import open_digits
from .domain import Dataset
from .domainsets import open_domain_set
from .folders import open_folder
from .imagenetc import open_imagenet_c
from .shift import with_corruptions

# name -> function; adding a data set is one file and one line here.
OPENERS: dict[str, Callable[..., Dataset]] = {
    "pacs": open_domain_set,
    "officehome": open_domain_set,
    "vlcs": open_domain_set,
    "domainnet": open_domain_set,
    "cifar10": open_cifar,
    "cifar100": open_cifar,
    "cifar10c": open_cifar_c,
    "cifar100c": open_cifar_c,
    "cifar10c-lt": open_cifar_c_lt,
    "cifar100c-lt": open_cifar_c_lt,
    "imagenetc": open_imagenet_c,
    "folder": open_folder,
    "digits": open_digits,
}
# Sets of clean images, which can be corrupted on the fly.
CLEAN = ("pacs", "officehome", "vlcs", "domainnet", "cifar10", "cifar100", "folder", "digits")
SHIFT = ("corruption", "severity", "corruption_seed", "constants")


def list_datasets() -> list[str]:
    """The names `open_dataset` knows."""
    return list(OPENERS)


def check_name(name: str) -> str:
    """A data set name in the spelling of the registry: CIFAR-10-C is cifar10c."""
    spelled = {key.replace("-", ""): key for key in OPENERS}
    key = spelled.get(str(name).casefold().replace("-", "").replace("_", ""))
    if key is None:
        raise ConfigError(f"unknown data set {name!r}; known: {', '.join(OPENERS)}")
    return key


def dataset_options(name: str) -> list[str]:
    """The options a data set takes beside its root."""
    key = check_name(name)
    own = [
        p.name
        for p in inspect.signature(OPENERS[key]).parameters.values()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    return own + (list(SHIFT) if key in CLEAN else [])


def reading_options(name: str, preprocessing: Preprocessing) -> dict[str, Any]:
    """The options under which a data set gives a model the pixels it takes.

    Images of a user's own are read as `fretta adapt` reads them; published sets as published.
    """
    known = dataset_options(name)
    if "fit" not in known:  # arrays of 32 × 32
        size = preprocessing.size
        return {} if size in (None, digits.SIDE) else {"size": size}
    own = {"exif": True, "alpha": "white"} if "alpha" in known else {}
    return {**preprocessing.options(), **own}


def open_dataset(name: str, root: str | os.PathLike[str] | None = None, **options: Any) -> Dataset:
    """A data set as it lies on disk. `root` falls back to the environment variable FRETTA_DATA;
    it is the folder of the data set or the one that holds it.

    Clean sets take `corruption=`, `severity=`, `corruption_seed=` and `constants=`: see
    `with_corruptions`. The test split of `digits` is corrupted unless `corruption=None` is passed.
    """
    key = check_name(name)
    known = dataset_options(key)
    for option in options:
        if option not in known:
            raise ConfigError(f"{key} has no option {option!r}; it has {', '.join(known)}")
    shift = {o: options[o] for o in SHIFT if o in options and key in CLEAN}
    own = {o: value for o, value in options.items() if o not in shift}
    dataset = OPENERS[key](key, None if root is None else Path(root), **own)
    if key == "digits" and own.get("split", "test") == "test":
        shift.setdefault("corruption", "all")
    corruption = shift.pop("corruption", None)
    if corruption is not None:
        dataset = with_corruptions(
            dataset,
            corruption,
            shift.get("severity", digits.SEVERITY if key == "digits" else 5),
            shift.get("corruption_seed", 0),
            shift.get("constants"),
        )
    elif shift:
        raise ConfigError(
            f"{', '.join(sorted(shift))} says how to corrupt {key}, but no corruption is chosen; "
            "pass corruption='all' or a name"
        )
    return replace(dataset, options=options)
