"""Cards: written, read, found beside weights, checked against a pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

import fretta
from fretta.data import Preprocessing
from fretta.errors import ConfigError, FrettaWarning, WeightsError
from fretta.models import Card, card_of, check_card, load_source, read_card, write_card
from fretta.models.cards import card_path, find_card, sha256

CARD = Card(
    model="digits:resnet8",
    num_classes=3,
    classes=["cat", "dog", "owl"],
    data={"name": "pets"},
    preprocessing=Preprocessing(size=32).to_json(),
    accuracy={"test": 0.75},
    seed=4,
)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Weights of three classes with their card."""
    path = tmp_path / "pets.safetensors"
    save_file(fretta.models.load(CARD.model, num_classes=3).state_dict(), path)
    write_card(path, replace(CARD, sha256=sha256(path)))
    return path


def test_round_trip(weights: Path) -> None:
    card = replace(CARD, sha256=sha256(weights))
    assert read_card(weights) == read_card(weights.with_suffix(".json")) == card
    assert json.loads(card_path(weights).read_text())["format"] == "fretta-card/1"
    assert sorted(p.name for p in weights.parent.iterdir()) == ["pets.json", "pets.safetensors"]


def test_the_card_comes_with_the_model(weights: Path) -> None:
    model = fretta.models.load(CARD.model, weights=weights)
    assert model.get_submodule("linear").out_features == 3
    assert card_of(model) == model.fretta_card == read_card(weights)
    assert card_of(fretta.models.load(CARD.model)) is None
    with pytest.raises(ConfigError, match=r"num_classes=5.*says 3"):
        fretta.models.load(CARD.model, weights=weights, num_classes=5)
    model, card = load_source(weights)  # the file is enough
    assert card == card_of(model)
    write_card(weights, replace(CARD, model="timm:resnet18"))
    with pytest.warns(FrettaWarning, match=r"says timm:resnet18, not digits:resnet8"):
        fretta.models.load("digits:resnet8", weights=weights)
    write_card(weights, replace(CARD, sha256="0" * 64))
    with pytest.raises(WeightsError, match="another SHA-256"):
        fretta.models.load(CARD.model, weights=weights)
    weights.with_suffix(".json").unlink()
    with pytest.raises(WeightsError, match="no card"):
        load_source(weights)
    with pytest.raises(WeightsError, match=r"ships .*digits"):
        load_source("digitz")


@pytest.mark.parametrize("text", ["{broken", "[1, 2]", '{"epochs": 3}'])
def test_a_json_file_of_another_tool_is_no_card(weights: Path, text: str) -> None:
    card_path(weights).write_text(text)
    assert find_card(weights) is None
    assert card_of(fretta.models.load(CARD.model, weights=weights, num_classes=3)) is None
    with pytest.raises(WeightsError):
        read_card(weights)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: c.pop("classes"), r"missing keys \['classes'\]"),
        (lambda c: c.update(color="red"), r"unknown keys \['color'\]"),
        (lambda c: c.update(format="fretta-card/9"), "fretta-card/9"),
        (lambda c: c.update(num_classes="3"), "num_classes is '3', not a int"),
        (lambda c: c.update(num_classes=True), "num_classes is True"),
    ],
)
def test_damaged_cards(weights: Path, damage: Callable[[Any], object], message: str) -> None:
    content = json.loads(card_path(weights).read_text())
    damage(content)
    card_path(weights).write_text(json.dumps(content))
    for read in (read_card, lambda path: fretta.models.load(CARD.model, weights=path)):
        with pytest.raises(WeightsError, match=message):
            read(weights)


def test_a_pipeline_that_fits() -> None:
    check_card(CARD, Preprocessing(), ["cat", "dog", "owl"])  # no size: any
    check_card(CARD, CARD.preprocessing, ("cat", "dog", "owl"))
    check_card(CARD, Preprocessing(mean=(0.48502, 0.456, 0.406)))
    unnamed = replace(CARD, classes=[])
    check_card(unnamed, classes=["a", "b", "c"])
    with pytest.raises(ConfigError, match="2 classes, the weights 3"):
        check_card(unnamed, classes=["a", "b"])
    with pytest.raises(ConfigError, match="num_classes=4 but 3 class names"):
        replace(CARD, num_classes=4)
    with pytest.warns(FrettaWarning, match="size is 48 where .* 32; interpolation is 'bicubic'"):
        check_card(CARD, Preprocessing(size=48, interpolation="bicubic"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"preprocessing": Preprocessing((0.5,) * 3, (0.5,) * 3)}, r"mean is \[0.5.*; std is"),
        ({"preprocessing": {"mean": [0.5]}}, r"mean is \[0.5\] where"),
        ({"classes": ["dog", "cat", "owl"]}, "label 0 is 'dog' in the data and 'cat'"),
        ({"classes": ["cat", "dog"]}, "2 classes, the weights 3"),
        ({"classes": ["cat", "dog", "fox"]}, "1 of 3 class names differ.*2: 'fox' / 'owl'"),
    ],
)
def test_a_pipeline_that_does_not(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_card(CARD, **given)
    with pytest.warns(FrettaWarning, match=message):
        check_card(CARD, **given, mismatch="warn")
    with pytest.raises(ConfigError, match="mismatch='ignore'"):
        check_card(CARD, **given, mismatch="ignore")
