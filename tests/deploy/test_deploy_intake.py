"""How images are prepared and what classes are called: found where models carry it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from deploy_nets import gray, tiny
from PIL import Image

from fretta.errors import ConfigError
from fretta.models import load, load_source
from fretta.models.labels import Labels, find_labels, named_by_folders, read_labels, truth_of
from fretta.models.preprocessing import find_preprocessing


def test_models_of_libraries_carry_theirs() -> None:
    net = load("timm:resnet18", num_classes=5)
    found = find_preprocessing(net, "timm:resnet18")
    assert (found.size, found.fit) == (224, "crop")
    assert found.decoding().short_side == int(224 / net.pretrained_cfg["crop_pct"])  # type: ignore[index, union-attr]
    assert found.decoding().exif
    assert found.decoding().alpha == "white"
    assert found.origin == "timm's configuration of the model"
    assert not find_labels(net, 5, None).known
    names = find_labels(load("timm:resnet18"), 1000, None)
    assert names.names[1].startswith("goldfish")
    assert names.of_folder()["n01443537"] == 1
    found = find_preprocessing(load("torchvision:resnet18"), "torchvision:resnet18")
    assert (found.size, found.crop_ratio) == (224, 0.875)
    assert found.mean == (0.485, 0.456, 0.406)


def test_a_card_knows_and_the_user_wins() -> None:
    net, card = load_source("digits")
    found = find_preprocessing(net, card.model)
    assert found.to_json() == card.preprocessing
    assert found.origin == "the card"
    other = find_preprocessing(net, card.model, size=48)
    assert other.size == 48
    assert other.origin == "size: as given; fit, interpolation, mean, std: the card"
    assert find_labels(net, 10, None).names == [str(digit) for digit in range(10)]


HF: dict[str, Any] = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 3}
CROPPED = {"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": 32}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"size": {"height": 32, "width": 32}}, (32, "squash", 0.875)),
        ({"size": 48}, (48, "squash", 0.875)),
        (CROPPED, (32, "crop", 0.8)),
    ],
)
def test_hugging_face_configs(tmp_path: Path, changes: dict[str, Any], expected: Any) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**HF, **changes}))
    found = find_preprocessing(tiny(), f"hf:{tmp_path}")
    assert (found.size, found.fit, found.crop_ratio) == expected
    assert found.interpolation == "bicubic"


def test_unknown_preprocessing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="size= and mean= and std="):
        find_preprocessing(tiny(), "deploy_nets:tiny")
    with pytest.raises(ConfigError, match="give std="):
        find_preprocessing(tiny(), "deploy_nets:tiny", size=8, mean=(0.5,) * 3)
    scaled = {**HF, "size": 32, "rescale_factor": 1 / 127.5}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(scaled))
    with pytest.raises(ConfigError, match="is not known"):
        find_preprocessing(tiny(), f"hf:{tmp_path}")


def test_a_model_of_gray_images() -> None:
    found = find_preprocessing(gray(), "deploy_nets:gray", size=4, mean=(0.0,), std=(1.0,))
    pixels = np.random.RandomState(0).randint(0, 256, (4, 4, 3)).astype(np.uint8)
    x = found.apply(torch.from_numpy(pixels).permute(2, 0, 1)[None], torch.device("cpu"))
    expected = np.asarray(Image.fromarray(pixels).convert("L"))
    assert x.shape == (1, 1, 4, 4)
    assert (x[0, 0].mul(255).round().numpy() == expected).all()


def test_labels_of_a_config() -> None:
    net = tiny(2)
    net.config = SimpleNamespace(id2label={1: "bee", 0: "ant"})  # type: ignore[assignment]
    assert find_labels(net, 2, None).names == ["ant", "bee"]
    net.config = SimpleNamespace(id2label={0: "LABEL_0", 1: "LABEL_1"})  # type: ignore[assignment]
    assert not find_labels(net, 2, None).known  # placeholders


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "\ufeffant\r\nbee\n\n"),
        ("a.json", '["ant", "bee"]'),
        ("b.json", '{"1": "bee", "0": "ant"}'),
        ("config.json", '{"id2label": {"0": "ant", "1": "bee"}, "hidden_size": 8}'),
    ],
)
def test_label_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(text.encode())
    assert read_labels(tmp_path / name) == ["ant", "bee"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "ant\n\nbee", "line 2 has no name"),
        ("a.txt", "", "line 1 has no name"),
        ("a.json", "[" * 100_000, "is not JSON"),
        ("a.json", '{"x": "ant"}', "'x' is no number"),
        ("a.json", '{"1": "ant"}', "are not 0 to 0"),
        ("a.json", "[1, 2]", "holds no labels"),
    ],
)
def test_bad_label_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_labels(tmp_path / name)


def test_when_folders_name_the_classes() -> None:
    labels = Labels(["ant", "bee"], "a file")
    folders = {"x/Ant": 0, "y/ant": 0, "bee": 1}
    assert truth_of(folders, labels) == (folders, "")
    assert truth_of([""], labels) == ({}, "")
    found, why = truth_of(["ant", "cow"], labels)
    assert not found
    assert "1 of 2 folders are not named as a class, such as 'cow'; the classes are 'ant'" in why
    assert truth_of(["a"], Labels(["a", "A"], "a file"))[0] == {}  # which of the two?


def test_folders_name_the_classes_of_a_model_that_does_not() -> None:
    def nameless(classes: int) -> Labels:
        return Labels([str(i) for i in range(classes)], "", known=False)

    found = named_by_folders(nameless(2), {"x/bee", "y/bee", "y/Ant"})
    assert found.known
    assert found.names == ["Ant", "bee"]
    assert "ImageFolder" in found.origin
    known = Labels(["bee", "ant"], "a file")
    assert named_by_folders(known, {"ant", "bee"}) is known
    numbers = {str(i) for i in range(11)}  # 10 after 9, or after 1?
    for classes, folders in ((2, {"ant"}), (2, {"", "ant"}), (11, numbers)):
        left = named_by_folders(nameless(classes), folders)
        assert not left.known
        assert "--labels FILE" in truth_of(folders, left)[1]
