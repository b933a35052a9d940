"""Published weights on real images give the accuracies they are known for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import fretta
from fretta.data import Preprocessing, Stream, make_stream, open_dataset
from fretta.models import load

pytestmark = pytest.mark.data

HALF = Preprocessing((0.5,) * 3, (0.5,) * 3, size=224)


def percent(model: nn.Module | fretta.Adapter, stream: Stream, how: Preprocessing) -> float:
    right = 0
    with torch.no_grad():
        for batch in stream:
            right += int((model(how.apply(batch.x)).argmax(1) == batch.y).sum())
    return 100 * right / stream.samples


def resnet20(shared: Path) -> nn.Module:
    return load("cifar:resnet20", shared / "data" / "weights" / "cifar10_resnet20.safetensors")


def test_resnet20_on_cifar10(shared: Path) -> None:
    stream = make_stream(open_dataset("cifar10", shared / "data"))
    assert stream.samples == 10_000
    assert percent(resnet20(shared), stream, Preprocessing()) >= 87


# Where the photographs of frost are not installed, the procedural ones do, with a warning.
@pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
def test_resnet20_under_corruption(shared: Path) -> None:
    """Severity 5, 500 images of each corruption: a drop to 45-70 %, bn brings back 10 points."""
    model = resnet20(shared)
    data = open_dataset("cifar10", shared / "data", corruption="all")
    stream = make_stream(data, "independent", limit=500, batch_size=100)
    assert stream.samples == 15 * 500
    source = percent(model, stream, Preprocessing())
    assert 45 <= source <= 70
    assert percent(fretta.adapt(model, "bn"), stream, Preprocessing()) >= source + 10


def test_efficientnet_on_art_painting(shared: Path) -> None:
    weights = shared / "data" / "weights" / "pacs_art_painting_tf_efficientnet_lite0.safetensors"
    model = load("timm:tf_efficientnet_lite0", weights, num_classes=7)
    data = open_dataset("pacs", shared / "data", domains=["art_painting"], size=160)
    stream = make_stream(data, batch_size=16)  # small batches spare the memory allocator
    assert percent(model, stream, Preprocessing(size=160)) == pytest.approx(75, abs=1)


@pytest.mark.slow
def test_efficientnet_on_imagenet(shared: Path) -> None:
    model = load("timm:tf_efficientnet_lite0", weights="efficientnet-lite0")
    data = open_dataset("folder", shared / "data", path="imagenet-sample", size=224)
    assert len(data.classes) == 1000
    fretta.models.check_card(model.fretta_card, HALF, data.classes)
    assert percent(model, make_stream(data, batch_size=16), HALF) == pytest.approx(86.6, abs=1)
