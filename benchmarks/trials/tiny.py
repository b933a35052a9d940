"""Networks of a few hundred weights, one for each kind of norm layer, and adapters of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import fretta
from fretta.method import Need
from fretta.methods import REGISTRY

CLASSES, SIZE = 5, 8
NORMS = ("batch", "layer", "group", "none")

# Few views and samples; filters that let untrained networks pass.
QUICK: dict[str, dict[str, Any]] = {
    "tea": {"sgld_steps": 1, "buffer_size": 8},
    "eta": {"e_margin": 0.999, "d_margin": 0.99},
    "eata": {"e_margin": 0.999, "d_margin": 0.99},
    "sar": {"e_margin": 0.999, "reset_threshold": 0.0},
    "rdumb": {"e_margin": 0.999, "d_margin": 0.99},
    "deyo": {"e_margin": 0.999, "plpd_margin": -0.9},
    "cotta": {"views": 2, "p_th": 1.1},
    "rotta": {"memory": 6, "update_every": 4},
    "note": {"memory": 6, "update_every": 4},
    "memo": {"views": 2},
    "auto": {"e_margin": 0.999},
}


class Tokens(nn.Module):
    """Patches as tokens, a layer norm before and after a small perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.mlp = nn.Linear(8, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch(x).flatten(2).transpose(1, 2)
        tokens = tokens + self.mlp(self.norm1(tokens)).relu()
        logits: Tensor = self.head(self.norm2(tokens).mean(1))
        return logits


def network(norm: str, seed: int = 0, classes: int = CLASSES) -> nn.Module:
    """In eval mode, with statistics and a head that are not those of a fresh network."""
    generator = torch.Generator().manual_seed(seed)
    if norm == "layer":
        net: nn.Module = Tokens()
    else:
        layers = {
            "batch": lambda: nn.BatchNorm2d(8),
            "group": lambda: nn.GroupNorm(2, 8),
            "none": nn.Identity,
        }
        new = layers[norm]
        net = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, 2, 1), new(), nn.ReLU()),
            *(nn.Conv2d(8, 8, 3, 1, 1), new(), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes)),
        )
    for name, tensor in net.state_dict().items():
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 1.5, generator=generator)
        elif tensor.is_floating_point():
            offset = 1.0 if tensor.dim() == 1 and name.endswith("weight") else 0.0
            tensor.normal_(offset, 0.3, generator=generator)
    return net.eval()


def images(count: int, seed: int, size: int = SIZE) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def new_adapter(method: str, model: nn.Module | str = "batch", **more: Any) -> fretta.Adapter:
    """Of one of the networks, or of a given model; quick settings, source images where needed."""
    net = network(model) if isinstance(model, str) else model
    values = {**QUICK.get(method, {}), **more}
    if Need.SOURCE in REGISTRY[method].needs:
        values.setdefault("source", [images(6, 90), images(6, 91)])
    if "lr" in REGISTRY[method].field_names():
        values.setdefault("lr", 1e-2)  # large: what should not move is seen to move
    return fretta.adapt(net, method, **values)


def same(a: object, b: object) -> bool:
    """Bit-for-bit equality of nested states; NaN equals NaN."""
    if isinstance(a, Tensor):
        if not isinstance(b, Tensor) or a.dtype != b.dtype or a.shape != b.shape:
            return False
        return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return (
            isinstance(b, list | tuple)
            and len(a) == len(b)
            and all(same(x, y) for x, y in zip(a, b, strict=True))
        )
    return a == b or (a != a and b != b)


def finite(value: object) -> bool:
    """Whether no NaN or infinity is in a nested state."""
    if isinstance(value, Tensor):
        return not value.is_floating_point() or bool(value.isfinite().all())
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(finite, value))
    return True


def save_pictures(folder: Path, count: int, seed: int = 0) -> list[Path]:
    """PNG files of 32 × 32 pixels, each different."""
    import numpy as np
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    pixels = np.random.RandomState(seed).randint(256, size=(count, 32, 32, 3), dtype=np.uint8)
    paths = [folder / f"{number:03d}.png" for number in range(count)]
    for path, image in zip(paths, pixels, strict=True):
        Image.fromarray(image).save(path)
    return paths


def classifier() -> nn.Module:
    """As `trials.tiny:classifier` names it on a command line."""
    return network("batch", classes=4)


def write_weights(path: Path) -> Path:
    from safetensors.torch import save_file

    save_file(classifier().state_dict(), path)
    return path


def adapt_options(folder: Path, **changes: Any) -> Any:
    """Of `fretta adapt` on pictures in this folder."""
    from fretta.deploy import AdaptOptions

    values: dict[str, Any] = {
        "model": "trials.tiny:classifier",
        "weights": str(folder / "tiny.safetensors"),
        "data": str(folder / "pictures"),
        "out": folder / "out",
        "method": "tent",
        "batch_size": 8,
        "size": 16,
        "mean": (0.5, 0.5, 0.5),
        "std": (0.25, 0.25, 0.25),
        "device": "cpu",
        "statistics": 16,
    }
    return AdaptOptions(**{**values, **changes})
