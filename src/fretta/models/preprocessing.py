"""How an image becomes what a model takes: found with the model.

Every command asks `find_preprocessing`, so that one model sees the same pixels everywhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..errors import ConfigError, InputError
from .cards import Card, card_of

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
CROP_RATIO = 0.875  # 224 of 256

# Pillow's convert("L"): fixed-point ITU-R 601 luma.
_LUMA = (19595, 38470, 7471)


def check_size(size: int | None) -> None:
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise ConfigError(f"size={size!r}; a number of pixels is expected, or None for no resizing")


@dataclass(frozen=True)
class Decoding:
    """How a file becomes pixels. Plain data, so it can travel to worker processes.

    fit "squash" scales to size × size whatever the aspect ratio; "crop" scales the short side
    to size / crop_ratio (256 for 224) and cuts the center. An image that already is
    size × size is left as it is. Pillow's filters are antialiased, as in torchvision's Resize.
    """

    size: int | None = 224
    fit: str = "squash"
    interpolation: str = "bilinear"
    exif: bool = False  # turn the image as its EXIF tag says; the published pipelines do not
    crop_ratio: float = CROP_RATIO
    alpha: str = "drop"  # as convert("RGB") does; "white" shows transparent pixels on white

    def __post_init__(self) -> None:
        check_size(self.size)
        for name, valid in (
            ("fit", ("squash", "crop")),
            ("interpolation", ("bilinear", "bicubic")),
            ("alpha", ("drop", "white")),
        ):
            value = getattr(self, name)
            if value not in valid:
                raise ConfigError(f"{name}={value!r}; one of {', '.join(valid)} is expected")
        if not 0 < self.crop_ratio <= 1:
            raise ConfigError(f"crop_ratio={self.crop_ratio}; a value in (0, 1] is expected")

    @property
    def short_side(self) -> int | None:
        """What "crop" scales the short side to before it cuts."""
        return self.size and max(self.size, int(self.size / self.crop_ratio + 0.5))


@dataclass(frozen=True)
class Preprocessing:
    """(x/255 − mean)/std on uint8 images of `size` pixels (None: any size)."""

    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    size: int | None = None
    fit: str = "squash"
    interpolation: str = "bilinear"
    crop_ratio: float = CROP_RATIO
    origin: str = field(default="", compare=False)  # where the values are from, in words

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            try:
                values = tuple(float(v) for v in getattr(self, name))
            except (TypeError, ValueError):
                values = ()
            if not values or not all(math.isfinite(v) for v in values):
                raise ConfigError(
                    f"{name}={getattr(self, name)!r}; a finite number per channel is expected"
                )
            object.__setattr__(self, name, values)
        if len(self.mean) != len(self.std) or min(self.std) <= 0:
            raise ConfigError(
                f"mean={self.mean}, std={self.std}; as many of each are expected, std above 0"
            )
        self.decoding()  # checks the others

    def decoding(self, exif: bool = True, alpha: str = "white") -> Decoding:
        """Files to pixels; the defaults are those for images of a user's own."""
        return Decoding(self.size, self.fit, self.interpolation, exif, self.crop_ratio, alpha)

    def apply(
        self,
        x: Tensor,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """uint8 (n, channels, H, W) to normalized floats; bytes cross to the device, not floats.

        For a model of one channel, RGB becomes gray.
        """
        if x.dtype != torch.uint8 or x.ndim != 4:
            raise InputError(
                f"preprocessing takes uint8 (n, channels, H, W), not {x.dtype} {tuple(x.shape)}; "
                "values that are already normalized must not be normalized again"
            )
        if len(self.mean) == 1 and x.shape[1] == 3:
            luma = torch.tensor(_LUMA, dtype=torch.int32, device=x.device).view(1, 3, 1, 1)
            x = ((x.int() * luma).sum(1, keepdim=True) + 0x8000 >> 16).to(torch.uint8)
        if x.shape[1] != len(self.mean):
            raise InputError(f"images have {x.shape[1]} channels, mean and std {len(self.mean)}")
        if self.size is not None and x.shape[2:] != (self.size, self.size):
            raise InputError(
                f"images are {x.shape[3]}×{x.shape[2]}, but the weights expect "
                f"{self.size}×{self.size}; open the data set with size={self.size}"
            )
        x = x.to(device, non_blocking=True) if device is not None else x
        mean = torch.tensor(self.mean, dtype=dtype, device=x.device).view(1, -1, 1, 1)
        std = torch.tensor(self.std, dtype=dtype, device=x.device).view(1, -1, 1, 1)
        return x.to(dtype).div_(255).sub_(mean).div_(std)

    def options(self) -> dict[str, Any]:
        """What to pass to open_dataset for a set of image files."""
        return {key: v for key, v in self.to_json().items() if key not in ("mean", "std")}

    def text(self) -> str:
        """The line every command prints."""
        size, short = self.size, self.decoding().short_side
        if size is None:
            resizing = "size as it is"
        elif self.fit == "crop":
            resizing = f"resize {short}, center crop {size}×{size}, {self.interpolation}"
        else:
            resizing = f"squash to {size}×{size}, {self.interpolation}"
        mean, std = (", ".join(f"{v:.4g}" for v in values) for values in (self.mean, self.std))
        origin = f" ({self.origin})" if self.origin else ""
        return f"{resizing}, mean {mean}, std {std}{origin}"

    def to_json(self) -> dict[str, Any]:
        """Runs are named by a hash of this: the usual crop ratio stays unsaid."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "origin"}
        if self.crop_ratio == CROP_RATIO:
            del values["crop_ratio"]
        return {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], origin: str = "") -> Preprocessing:
        known = [f.name for f in fields(cls) if f.name != "origin"]
        if set(data) - set(known) or "mean" not in data or "std" not in data:
            raise ConfigError(
                f"preprocessing with the keys {sorted(data)}; mean and std are needed, "
                f"{', '.join(known[2:])} may be given"
            )
        return cls(**data, origin=origin)


def attach_preprocessing(net: nn.Module, preprocessing: Preprocessing) -> None:
    """Let it travel with the model, as `model.fretta_preprocessing`."""
    cast(Any, net).fretta_preprocessing = preprocessing


def input_scale(net: nn.Module) -> tuple[Any, Any] | None:
    """Mean and std that the inputs of a model were normalized by, where the model says."""
    attached = getattr(net, "fretta_preprocessing", None)
    if isinstance(attached, Preprocessing):
        return attached.mean, attached.std
    card = card_of(net)
    known = (card.preprocessing if card else getattr(net, "pretrained_cfg", None)) or {}
    return (known.get("mean"), known["std"]) if known.get("std") is not None else None


def input_std(net: nn.Module) -> tuple[float, ...] | None:
    """The std that the inputs of a model were divided by, where the model says."""
    scale = input_scale(net)
    return None if scale is None else scale[1]


# ---- finding it ----------------------------------------------------------------------------------

TIMM = "timm's configuration of the model"
_SHOWN = ("size", "fit", "interpolation", "mean", "std")
_KEYS = (*_SHOWN, "crop_ratio")


def find_preprocessing(
    net: nn.Module | None, spec: str, card: Card | None = None, **given: Any
) -> Preprocessing:
    """What a model takes; it travels with the model from then on.

    net     None: not loaded, so its library is not asked
    card    of the weights; None: the one that was attached to the model, if any
    given   size, mean, std, fit; None: not given

    What is given wins; then the card, then what the library knows of the model.
    """
    layers = [({k: v for k, v in given.items() if v is not None}, "as given")]
    card = card or (None if net is None else card_of(net))
    if card is not None:
        layers.append(({k: card.preprocessing.get(k) for k in _KEYS}, "the card"))
    if net is not None:
        layers.append(_of_library(net, spec))
    layers.append(({"fit": "squash", "interpolation": "bilinear"}, "default"))
    facts: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for values, origin in layers:
        for key, value in values.items():
            if value is not None and key not in facts:
                facts[key], origins[key] = value, origin
    needed = ("size", "mean", "std") if net is not None else ("mean", "std")
    lacking = [f"{key}=" for key in needed if key not in facts]
    if lacking:
        raise ConfigError(
            f"how images are preprocessed for {spec!r} is not known; give {' and '.join(lacking)}"
            " (such as size=224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)), as in"
            " training: other values cost accuracy"
        )
    if facts["fit"] != "crop":
        facts.pop("crop_ratio", None)
    elif origins.get("crop_ratio") == TIMM:  # timm rounds the short side down
        facts["crop_ratio"] = facts["size"] / int(facts["size"] / facts["crop_ratio"] + 1e-6)
    found = Preprocessing(**facts, origin=_origin(origins))
    if net is not None:
        attach_preprocessing(net, found)
    return found


def _origin(origins: Mapping[str, str]) -> str:
    """ "the card", or "size: as given; fit, mean, std: the card"."""
    by: dict[str, list[str]] = {}
    for key in (key for key in _SHOWN if key in origins):
        by.setdefault(origins[key], []).append(key)
    if len(by) == 1:
        return next(iter(by))
    return "; ".join(f"{', '.join(keys)}: {origin}" for origin, keys in by.items())


def _of_library(net: nn.Module, spec: str) -> tuple[dict[str, Any], str]:
    source, _, name = spec.partition(":")
    timm = getattr(net, "pretrained_cfg", None)
    if isinstance(timm, Mapping) and timm.get("mean") and timm.get("input_size"):
        return _timm(timm), TIMM
    if source == "hf":
        return _hugging_face(Path(name)), "preprocessor_config.json"
    if source == "torchvision":
        return _torchvision(name), "torchvision's preset for the model"
    return {}, ""


def _timm(facts: Mapping[str, Any]) -> dict[str, Any]:
    _, height, width = facts["input_size"]
    squash = facts.get("crop_mode") == "squash"
    return {
        "mean": tuple(facts["mean"]),
        "std": tuple(facts["std"]),
        "size": int(height) if height == width else None,  # only square images are cut
        "fit": "squash" if squash else "crop",
        "crop_ratio": float(facts.get("crop_pct") or CROP_RATIO),
        "interpolation": "bicubic" if facts.get("interpolation") == "bicubic" else "bilinear",
    }


def _torchvision(name: str) -> dict[str, Any]:
    from torchvision.models import get_model_weights

    preset = next(iter(get_model_weights(name))).transforms()
    try:
        size, short = int(preset.crop_size[0]), int(preset.resize_size[0])
        return {
            "mean": tuple(preset.mean),
            "std": tuple(preset.std),
            "size": size,
            "fit": "crop",
            "crop_ratio": min(1.0, size / short),
            "interpolation": "bicubic" if "bicubic" in str(preset.interpolation) else "bilinear",
        }
    except (AttributeError, TypeError, IndexError):
        return {}


def _hugging_face(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / "preprocessor_config.json").read_text(encoding="utf-8"))
        scale = float(content.get("rescale_factor", 1 / 255))
        if not content.get("do_rescale", True) or abs(scale * 255 - 1) > 1e-3:
            return {}
        crop = content.get("crop_size") if content.get("do_center_crop") else None
        short = _side(content.get("size"))
        size = short if crop is None else _side(crop)
        normalize = content.get("do_normalize", True)
        return {
            "mean": tuple(content["image_mean"]) if normalize else (0.0,) * 3,
            "std": tuple(content["image_std"]) if normalize else (1.0,) * 3,
            "size": size,
            "interpolation": "bicubic" if content.get("resample") == 3 else "bilinear",
            "fit": "squash" if crop is None else "crop",
            "crop_ratio": min(1.0, size / short) if crop and size and short else None,
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _side(value: Any) -> int | None:
    """224, {"height": 224, "width": 224} or {"shortest_edge": 224}."""
    if isinstance(value, Mapping):
        if value.get("height") != value.get("width"):
            return None
        value = value.get("height", value.get("shortest_edge"))
    return int(value) if value is not None else None
