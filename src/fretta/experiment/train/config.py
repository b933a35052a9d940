"""What to train and on what: plain values, checked before anything is read."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ...data import Preprocessing
from ...errors import ConfigError
from ...parts.compute import PRECISIONS

SINGLE = ("digits", "cifar10", "cifar100")  # one domain, passes over it, SGD
SETS = ("pacs", "officehome", "vlcs", "domainnet", "folder")  # leave one domain out, Adam

# What None means, by data set. The values of domain sets are those of the FRET paper's protocol.
_CIFAR = {
    "model": "cifar:resnet18",
    "epochs": 200,
    "batch_size": 128,
    "lr": 0.1,
    "weight_decay": 5e-4,
    "evaluate_every": 0,
    "size": 32,
}
_SET = {
    "model": "timm:resnet18",
    "iterations": 5000,
    "batch_size": 32,
    "lr": 5e-5,
    "weight_decay": 0.0,
    "evaluate_every": 100,
    "size": 224,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "digits": {**_CIFAR, "model": "digits:resnet8", "epochs": 40, "batch_size": 64},
    "cifar10": _CIFAR,
    "cifar100": _CIFAR,
    **dict.fromkeys(SETS, _SET),
}
_LEAST = {  # of whole numbers
    "epochs": 1,
    "iterations": 1,
    "batch_size": 2,  # batch norm has no variance of one image
    "evaluate_every": 0,
    "size": 8,
    "seed": 0,
    "limit": 2,
    "checkpoint_every": 0,
    "workers": 0,
    "cutout": 0,
}
_BELOW = {"lr": float("inf"), "weight_decay": float("inf"), "momentum": 1.0, "label_smoothing": 1.0}
SCHEDULES = ("cosine", "one-cycle")
# what older cards were trained with
_LATER = {"schedule": "cosine", "progressive": None, "cutout": 0, "precision": None, "half": False}
_NO_EFFECT = ("out", "root", "checkpoint_every", "workers", "device", "overwrite")  # on the weights


@dataclass(frozen=True)
class TrainConfig:
    """A training run. None stands for the default of the data set; `resolved()` fills it in."""

    data: str  # digits, cifar10, cifar100, pacs, officehome, vlcs, domainnet, folder
    out: str | os.PathLike[str]  # the .safetensors file to write; its card goes beside it
    root: str | os.PathLike[str] | None = None  # where the data is; else FRETTA_DATA
    target: str | None = None  # the domain left out, for domain sets
    model: str | None = None
    # weights to start from: a file, "efficientnet-lite0", or "pretrained" for a download
    init: str | os.PathLike[str] | None = None
    epochs: int | None = None  # passes over digits or CIFAR
    iterations: int | None = None  # steps on domain sets
    batch_size: int | None = None  # per domain
    lr: float | None = None
    weight_decay: float | None = None
    momentum: float = 0.9  # of SGD
    label_smoothing: float = 0.0
    schedule: str = "cosine"  # or "one-cycle": up to lr for a quarter of the steps, then down to 0
    progressive: tuple[int, ...] | None = None  # sizes over the run, equal parts, up to `size`
    cutout: int = 0  # side of a square of each image that is painted over with `mean`
    precision: str | None = None  # "bfloat16" trains under autocast
    half: bool = False  # write matrices and kernels in float16: half the file
    evaluate_every: int | None = None  # steps between validations; 0: only at the end
    size: int | None = None  # pixels
    mean: tuple[float, ...] = Preprocessing.mean
    std: tuple[float, ...] = Preprocessing.std
    seed: int = 0
    limit: int | None = None  # images per domain and split, for a trial
    checkpoint_every: int = 200  # steps; 0: never
    workers: int = 0  # processes that decode image files
    device: str = "cpu"
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.data not in DEFAULTS:
            raise ConfigError(f"data={self.data!r}; to train on there are {', '.join(DEFAULTS)}")
        if Path(self.out).suffix != ".safetensors":
            raise ConfigError(f"out={str(self.out)!r}; a name ending in .safetensors is expected")
        if self.data in SETS and not self.target:
            raise ConfigError(
                f"{self.data} is trained on all domains but one: say which with target="
            )
        for name, used in (("target", SETS), ("iterations", SETS), ("epochs", SINGLE)):
            if getattr(self, name) is not None and self.data not in used:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r} has no effect on {self.data}; it is for "
                    f"{', '.join(used)}"
                )
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is None and getattr(TrainConfig, name) is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{name}={value!r}; a whole number from {least} is expected")
        for name, below in _BELOW.items():
            value = getattr(self, name)
            if value is None:
                continue
            number = isinstance(value, int | float) and 0 <= value < below
            if not number or (name == "lr" and value == 0):
                raise ConfigError(f"{name}={value!r}; a number from 0 to {below} is expected")
        for name, known in (("schedule", SCHEDULES), ("precision", (None, *PRECISIONS))):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name}={getattr(self, name)!r}; one of {known} is expected")
        for name, default in (("schedule", "cosine"), ("progressive", None), ("cutout", 0)):
            if getattr(self, name) != default and self.data in SETS:
                raise ConfigError(f"{name}={getattr(self, name)!r} has no effect on {self.data}")
        if self.progressive is not None:
            size = self.size or DEFAULTS[self.data]["size"]
            sizes = self.progressive if isinstance(self.progressive, tuple | list) else ()
            whole = all(isinstance(s, int) and 4 <= s <= size for s in sizes)
            if not (sizes and whole and sizes[-1] == size):
                raise ConfigError(
                    f"progressive={self.progressive!r}; sizes in pixels are expected, from 4 to "
                    f"{size}, the last of them {size}: ({size // 2}, {size * 3 // 4}, {size})"
                )
        if self.evaluate_every and self.data in ("cifar10", "cifar100"):
            raise ConfigError(
                f"evaluate_every={self.evaluate_every}: {self.data} has no validation split to "
                "choose weights on; the last ones are kept"
            )
        _ = self.preprocessing  # checks mean and std

    @property
    def leave_one_out(self) -> bool:
        return self.data in SETS

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing(self.mean, self.std, self.size)

    def resolved(self) -> TrainConfig:
        """The same run with every default written out."""
        defaults = DEFAULTS[self.data].items()
        return replace(self, **{k: v for k, v in defaults if getattr(self, k) is None})

    def settings(self) -> dict[str, Any]:
        """What decides the weights; places, machines and how often to save do not."""
        values = {k: v for k, v in asdict(self.resolved()).items() if k not in _NO_EFFECT}
        values["init"] = None if self.init is None else str(self.init)
        values = {k: v for k, v in values.items() if k not in _LATER or v != _LATER[k]}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
