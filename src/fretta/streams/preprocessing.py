"""Pixels to what a network takes. Travels with the weights, happens on the device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import ConfigError, InputError
from .images import Decoding

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preprocessing:
    """(x/255 − mean)/std on uint8 images of `size` pixels (None: any size)."""

    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    size: int | None = None
    fit: str = "squash"
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            try:
                values = tuple(float(v) for v in getattr(self, name))
            except (TypeError, ValueError) as error:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r}; a number per channel is expected"
                ) from error
            if not values or not all(math.isfinite(v) for v in values):
                raise ConfigError(f"{name}={values}; finite numbers are expected")
            object.__setattr__(self, name, values)
        if len(self.mean) != len(self.std) or min(self.std) <= 0:
            raise ConfigError(
                f"mean={self.mean}, std={self.std}; as many of each are expected, std above 0"
            )
        Decoding(self.size, self.fit, self.interpolation)  # checks the three

    def apply(
        self,
        x: Tensor,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """uint8 (n, channels, H, W) to normalised floats; bytes cross to the device, not floats."""
        if x.dtype != torch.uint8 or x.ndim != 4:
            raise InputError(
                f"preprocessing takes uint8 (n, channels, H, W), not {x.dtype} {tuple(x.shape)}; "
                "values that are already normalised must not be normalised again"
            )
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
        return {"size": self.size, "fit": self.fit, "interpolation": self.interpolation}

    def to_json(self) -> dict[str, Any]:
        return {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Preprocessing:
        unknown = sorted(set(data) - set(cls.__dataclass_fields__))
        if unknown or "mean" not in data or "std" not in data:
            raise ConfigError(
                f"preprocessing with the keys {sorted(data)}; mean and std are needed, "
                f"{', '.join(list(cls.__dataclass_fields__)[2:])} may be given"
            )
        return cls(**data)
