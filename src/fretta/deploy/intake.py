"""What a model takes: how its images are cut and scaled, found where the model carries it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ConfigError
from ..models import card_of
from ..streams.images import Decoding
from ..streams.preprocessing import Preprocessing

# Pillow's convert("L"): fixed-point ITU-R 601 luma.
_LUMA = torch.tensor([19595, 38470, 7471], dtype=torch.int32).view(1, 3, 1, 1)


@dataclass(frozen=True)
class Intake:
    """Files to pixels (`decoding`), pixels to what the network takes (`preprocessing`)."""

    decoding: Decoding
    preprocessing: Preprocessing
    origin: str

    def apply(self, pixels: Tensor, device: torch.device) -> Tensor:
        if len(self.preprocessing.mean) == 1:
            pixels = ((pixels.int() * _LUMA).sum(1, keepdim=True) + 0x8000 >> 16).to(torch.uint8)
        return self.preprocessing.apply(pixels.contiguous(), device)

    def text(self) -> str:
        how = {"squash": "squashed to", "crop": "cut from the centre at"}[self.decoding.fit]
        return (
            f"{how} {self.decoding.size}×{self.decoding.size} pixels, mean"
            f" {_short(self.preprocessing.mean)}, std {_short(self.preprocessing.std)}"
            f" ({self.origin})"
        )


def _short(values: tuple[float, ...]) -> str:
    return ", ".join(f"{v:.4g}" for v in values)


def find_intake(
    net: nn.Module,
    spec: str,
    *,
    size: int | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    fit: str | None = None,
    alpha: str = "white",
) -> Intake:
    """What the user says wins; then the card, then what the library knows of the model."""
    facts, origin = _known(net, spec)
    said = {"size": size, "mean": mean, "std": std, "fit": fit}
    given = {key: value for key, value in said.items() if value is not None}
    facts = {**facts, **given}
    lacking = [f"--{key}" for key in ("size", "mean", "std") if facts.get(key) is None]
    if lacking:
        raise ConfigError(
            f"how images are prepared for {spec!r} is not known; say it with"
            f" {' and '.join(lacking)} (such as --size 224 --mean 0.485,0.456,0.406"
            " --std 0.229,0.224,0.225), as in training: other values cost accuracy"
        )
    if given:
        origin = (
            "as given"
            if len(given) >= 3 or not origin
            else f"{origin}; as given: " + (", ".join(sorted(given)))
        )
    chosen = {k: facts[k] for k in ("size", "fit", "interpolation") if k in facts}
    ratio = {"crop_ratio": facts["crop_ratio"]} if facts.get("crop_ratio") else {}
    return Intake(
        Decoding(**chosen, **ratio, exif=True, alpha=alpha),
        Preprocessing(facts["mean"], facts["std"], **chosen),
        origin,
    )


def _known(net: nn.Module, spec: str) -> tuple[dict[str, Any], str]:
    card = card_of(net)
    if card is not None and card.preprocessing:
        keys = ("mean", "std", "size", "fit", "interpolation")
        return {k: card.preprocessing[k] for k in keys if k in card.preprocessing}, "the card"
    source, _, name = spec.partition(":")
    timm = getattr(net, "pretrained_cfg", None)
    if isinstance(timm, Mapping) and timm.get("mean") and timm.get("input_size"):
        return _timm(timm), "timm's configuration of the model"
    if source == "hf":
        return _hugging_face(Path(name))
    if source == "torchvision":
        return _torchvision(name)
    return {}, ""


def _timm(facts: Mapping[str, Any]) -> dict[str, Any]:
    _, height, width = facts["input_size"]
    if height != width:
        raise ConfigError(f"the model takes {width}×{height} pixels; only square images are cut")
    squash = facts.get("crop_mode") == "squash"
    return {
        "mean": tuple(facts["mean"]),
        "std": tuple(facts["std"]),
        "size": int(height),
        "fit": "squash" if squash else "crop",
        "crop_ratio": float(facts.get("crop_pct") or 0.875),
        "interpolation": "bicubic" if facts.get("interpolation") == "bicubic" else "bilinear",
    }


def _torchvision(name: str) -> tuple[dict[str, Any], str]:
    from torchvision.models import get_model_weights

    how = next(iter(get_model_weights(name))).transforms()
    try:
        cut, whole = int(how.crop_size[0]), int(how.resize_size[0])
        facts = {
            "mean": tuple(how.mean),
            "std": tuple(how.std),
            "size": cut,
            "fit": "crop",
            "crop_ratio": min(1.0, cut / whole),
            "interpolation": "bicubic" if "bicubic" in str(how.interpolation) else "bilinear",
        }
    except (AttributeError, TypeError, IndexError):
        return {}, ""
    return facts, "torchvision's preset for the model"


def _hugging_face(folder: Path) -> tuple[dict[str, Any], str]:
    try:
        content = json.loads((folder / "preprocessor_config.json").read_text(encoding="utf-8"))
        scale = float(content.get("rescale_factor", 1 / 255))
        if not content.get("do_rescale", True) or abs(scale * 255 - 1) > 1e-3:
            return {}, ""
        cut = content.get("crop_size") if content.get("do_center_crop") else None
        size = _side(cut if cut is not None else content.get("size"))
        whole = _side(content.get("size"))
        plain = not content.get("do_normalize", True)
        facts: dict[str, Any] = {
            "mean": (0.0,) * 3 if plain else tuple(content["image_mean"]),
            "std": (1.0,) * 3 if plain else tuple(content["image_std"]),
            "size": size,
            "interpolation": "bicubic" if content.get("resample") == 3 else "bilinear",
            "fit": "squash" if cut is None else "crop",
        }
        if cut is not None and whole and size:
            facts["crop_ratio"] = min(1.0, size / whole)
    except (OSError, ValueError, TypeError, KeyError):
        return {}, ""
    return facts, "preprocessor_config.json"


def _side(value: Any) -> int | None:
    """224, {"height": 224, "width": 224} or {"shortest_edge": 224}."""
    if isinstance(value, Mapping):
        if value.get("height") != value.get("width"):
            return None
        value = value.get("height", value.get("shortest_edge"))
    return int(value) if value is not None else None
