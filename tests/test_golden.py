"""The released variants against the trajectories of the code released with the paper."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import fretta
from nets import with_rounding_noise

pytestmark = pytest.mark.data
RENAMED = {"filter_K": "k1", "K2": "k2", "margin": "e_margin"}


def cases() -> list[dict[str, Any]]:
    meta = Path(os.environ.get("FRETTA_DATA", "absent")).resolve().parent / "golden" / "meta.json"
    return json.loads(meta.read_text())["cases"] if meta.is_file() else [{"key": "absent"}]


def network(kind: str, folder: Path) -> nn.Module:
    def block(inside: int, outside: int, stride: int) -> list[nn.Module]:
        conv = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        return [conv, nn.BatchNorm2d(outside), nn.ReLU()]

    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    if kind == "bn":
        blocks = [*block(3, 32, 1), *block(32, 64, 2), *block(64, 64, 1), *block(64, 128, 2)]
        net = nn.Sequential(*blocks, *pool, nn.Linear(128, 10))
    else:
        net = nn.Sequential(
            *(nn.Conv2d(3, 64, 4, 4), nn.GroupNorm(8, 64), nn.GELU()),
            *(nn.Conv2d(64, 96, 3, 1, 1), nn.GroupNorm(8, 96), nn.GELU()),
            *(nn.Conv2d(96, 96, 3, 2, 1), nn.GELU(), *pool, nn.LayerNorm(96), nn.Linear(96, 10)),
        )
    net.load_state_dict(load_file(folder / f"{kind}_net.safetensors"))
    return net.eval()


def inputs(images: Tensor) -> Tensor:
    return ((images.float() / 255 - 0.5) / 0.5).permute(0, 3, 1, 2).contiguous()


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["key"])
def test_trajectory(case: dict[str, Any], shared: Path) -> None:
    golden = shared / "golden"
    stream = load_file(golden / "stream.safetensors")
    sizes = json.loads((golden / "meta.json").read_text())["batches"]
    values = {RENAMED.get(k, k): v for k, v in case["hyperparameters"].items()}
    if "e_margin" in values:  # nats there, a fraction of ln C here
        values["e_margin"] /= math.log(10)
    method = fretta.methods.REGISTRY[case["method"]]
    if method.gradient:
        values["lr"] = case["lr"]
    if method.variants:
        values["variant"] = "released"
    source = inputs(stream["source_images"]).split(64) if case["method"] == "eata" else None

    def run(net: nn.Module, images: list[Tensor]) -> Tensor:
        adapter = fretta.adapt(net, case["method"], source=source, **values)
        return torch.cat([adapter(x) for x in images])

    net, images = network(case["net"], golden), list(inputs(stream["images"]).split(sizes))
    logits, noise = with_rounding_noise(run, net, images, draws=1)
    expected = load_file(golden / "logits.safetensors")[case["key"]]
    assert noise < 1e-3 * expected.abs().max()  # else nothing could be compared
    assert (logits - expected).abs().max() <= 10 * noise
    accuracy = (logits.argmax(1) == stream["labels"]).double().mean().item()
    assert accuracy == pytest.approx(case["accuracy"], abs=2e-3)
