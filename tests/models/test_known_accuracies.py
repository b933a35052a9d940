"""Weights on the images they are known for: those in the package, and published ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

import fretta
from fretta.data import Dataset, Preprocessing, make_stream, open_dataset
from fretta.models import check_card, list_sources, load, load_source
from fretta.models.load import ASSETS

HALF = Preprocessing((0.5,) * 3, (0.5,) * 3, size=224)
# Where the photographs of frost are not installed, the procedural ones do, with a warning.
any_frost = pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")


def percent(
    model: nn.Module,
    data: Dataset,
    how: Preprocessing,
    method: str = "source",
    batch_size: int = 100,
) -> dict[str, float]:
    """Accuracy by domain, one after the other."""
    adapter, found = fretta.adapt(model, method), {}
    for domain in data.names:
        stream = make_stream(data, domains=[domain], batch_size=batch_size)
        batches = ((how.apply(batch.x), batch.y) for batch in stream)
        found[domain] = 100 * fretta.evaluate(adapter, batches).accuracy
    return found


def mean(values: dict[str, float]) -> float:
    return sum(values.values()) / len(values)


def test_card_and_size_of_the_shipped_model() -> None:
    assert list_sources() == ["digits"]
    model, card = load_source("digits")
    assert card == fretta.models.card_of(model)
    files = [p for p in Path(ASSETS).iterdir() if p.suffix in (".json", ".safetensors")]
    assert sum(p.stat().st_size for p in files) < 2e6
    data = open_dataset("digits", split="train")
    assert card.data["fingerprint"] == data.fingerprint()  # no test image was trained on
    check_card(card, Preprocessing.from_json(card.preprocessing), data.classes)


@any_frost
@pytest.mark.slow
def test_the_shift_hurts_and_adaptation_helps() -> None:
    model, card = load_source("digits")
    how = Preprocessing.from_json(card.preprocessing)
    clean = mean(percent(model, open_dataset("digits", corruption=None), how))
    assert clean >= 97
    assert clean == pytest.approx(100 * card.accuracy["test"], abs=0.2)
    shifted = open_dataset("digits")
    source, bn, tent = (percent(model, shifted, how, m, 64) for m in ("source", "bn", "tent"))
    assert mean(source) <= clean - 20
    assert min(mean(bn), mean(tent)) >= mean(source) + 20
    hurt = [name for name in source if source[name] < clean - 10]
    assert len(hurt) >= 10  # most corruptions hurt, not one or two
    assert all(bn[name] > source[name] for name in hurt)


@any_frost
@pytest.mark.data
def test_resnet20_on_cifar10(shared: Path) -> None:
    """At severity 5 it drops to 45-70 %, and bn brings back 10 points."""
    weights = shared / "data" / "weights" / "cifar10_resnet20.safetensors"
    model, how = load("cifar:resnet20", weights), Preprocessing()
    clean = open_dataset("cifar10", shared / "data")
    assert sum(map(len, clean.domains)) == 10_000
    assert mean(percent(model, clean, how)) >= 87
    corrupted = open_dataset("cifar10", shared / "data", corruption="all")
    few = [domain.subset(range(500)) for domain in corrupted.domains]
    few_images = type(corrupted)(corrupted.name, corrupted.classes, few)
    source = mean(percent(model, few_images, how))
    assert 45 <= source <= 70
    assert mean(percent(model, few_images, how, "bn")) >= source + 10


@pytest.mark.data
def test_efficientnet_on_art_painting(shared: Path) -> None:
    weights = shared / "data" / "weights" / "pacs_art_painting_tf_efficientnet_lite0.safetensors"
    model = load("timm:tf_efficientnet_lite0", weights, num_classes=7)
    data = open_dataset("pacs", shared / "data", domains=["art_painting"], size=160)
    found = percent(model, data, Preprocessing(size=160), batch_size=16)
    assert mean(found) == pytest.approx(75, abs=1)


@pytest.mark.data
@pytest.mark.slow
def test_efficientnet_on_imagenet(shared: Path) -> None:
    model = load("timm:tf_efficientnet_lite0", weights="efficientnet-lite0")
    data = open_dataset("folder", shared / "data", path="imagenet-sample", size=224)
    assert len(data.classes) == 1000
    check_card(model.fretta_card, HALF, data.classes)
    assert mean(percent(model, data, HALF, batch_size=16)) == pytest.approx(86.6, abs=1)
