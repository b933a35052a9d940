"""open_case: model, preprocessing, labels and data in one way for every command; the loop."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import nets
from fretta.data import open_dataset
from fretta.data.domainsets import PACS_CLASSES
from fretta.errors import (
    ConfigError,
    DataError,
    FrettaWarning,
    ModelError,
    NeedError,
    WeightsError,
)
from fretta.experiment.case import Case, open_case
from fretta.experiment.loop import Item, share_frozen, stream_through
from fretta.experiment.run import case_of
from fretta.experiment.suite import jobs_on, load_suite
from fretta.models import Card, load_source, write_card
from fretta.models.load import ASSETS


@pytest.fixture(scope="module")
def case() -> Case:
    return open_case("digits", "digits", source="digits", corruption="fog", severity=3)


def test_what_a_case_has(case: Case) -> None:
    assert case.labels.names == [str(digit) for digit in range(10)]
    assert case.source == {"name": "digits", "split": "train"}
    assert case.data.names == ["fog"]
    assert case.place.weights == str(ASSETS / "digits.safetensors")
    run = case.run("eata", {"lr": 0.1}, order="mixed", batch_size=32, seed=1)
    assert run.data == {"name": "digits", "corruption": "fog", "severity": 3}
    assert run.data_hash == open_dataset(**run.data).fingerprint()
    assert (run.weights_hash, len(run.source_hash)) == (load_source("digits")[1].sha256, 64)
    assert case.run("tent", {}, order="mixed", batch_size=32, seed=1).source is None


def test_jobs_outside_a_suite_and_their_cases(case: Case) -> None:
    first, second, third = jobs_on(case, {"bn": {}, "g-fret": {"matrix": {"lam": [0.1, 1.0]}}})
    assert [j.tags["label"] for j in (first, second, third)] == [
        *("bn", "g-fret lam=0.1", "g-fret lam=1")
    ]
    again = case_of(first)
    assert again.data is case.data  # not opened twice
    assert again.model == case.model
    assert case_of(type(first).from_json(first.to_json())).data_hash == case.data_hash


def test_a_suite_opens_data_once_and_loads_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*arguments: Any) -> None:
        raise AssertionError("a network was loaded to make a list of runs")

    monkeypatch.setattr("fretta.experiment.case.load", load)
    jobs = load_suite("digits").jobs()
    assert len({id(job.dataset) for job in jobs}) == 1


def test_source_images_from_a_folder(tmp_path: Path) -> None:
    for number in range(5):
        Image.fromarray(np.full((20, 30, 3), 40 * number, np.uint8)).save(
            tmp_path / f"{number}.png"
        )
    case = open_case("digits", source=tmp_path)
    batches = list(case.source_images(batch_size=3))
    assert [tuple(x.shape) for x in batches] == [(3, 3, 32, 32), (2, 3, 32, 32)]
    case.adapter("eata", batch_size=3)(batches[0])
    with pytest.raises(NeedError, match="source"):
        open_case("digits", "digits").run("eata", {}, order="mixed", batch_size=8, seed=0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "digitz"}, "'digitz' is not understood"),
        ({"model": "gone.safetensors"}, "no weights file 'gone.safetensors'"),
        ({"model": "timm:test_resnet"}, "never trained"),
        ({"model": "digits", "num_classes": 3}, "num_classes=3"),
        ({"model": "digits", "size": 48, "data": {"name": "digits"}}, "takes 48×48 pixels"),
        ({"model": "digits", "data": "digitz"}, "unknown data set"),
        ({"model": "digits", "fit": "stretch"}, "fit='stretch'"),
    ],
)
def test_what_cannot_be_opened(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_case(**given)


def test_folders_that_are_no_classes_of_the_model(tmp_path: Path) -> None:
    for name in ("cats", "dogs"):
        (tmp_path / name).mkdir()
        Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(tmp_path / name / "0.png")
    with pytest.raises(
        ConfigError, match="2 of 2 folders are not named as a class, such as 'cats'"
    ):
        open_case("digits", str(tmp_path))
    with pytest.raises(ConfigError, match="does not name its 3 classes"):
        open_case("timm:test_resnet", str(tmp_path), untrained=True, num_classes=3)
    two = open_case("timm:test_resnet", str(tmp_path), untrained=True, num_classes=2)
    assert two.data.classes == ["cats", "dogs"]


def test_an_unreadable_first_image_is_left_to_the_stream(tmp_path: Path) -> None:
    """Which names it, or skips it."""
    for number in range(10):
        (tmp_path / str(number)).mkdir()
        Image.new("RGB", (32, 32)).save(tmp_path / str(number) / "1.png")
    (tmp_path / "0" / "0.png").write_bytes(b"no image")
    case = open_case("digits", str(tmp_path))
    assert len(case.data.domains[0]) == 11
    with pytest.warns(FrettaWarning, match=r"skipped: unreadable image .*0\.png"):
        found = list(case.items(case.stream("independent", batch_size=4, errors="skip")))
    assert sum(len(item.x) for item in found) == 10
    with pytest.raises(DataError, match=r"0\.png"):
        list(case.items(case.stream("independent", batch_size=4)))


def test_a_card_does_not_choose_what_code_runs(tmp_path: Path) -> None:
    weights = tmp_path / "w.safetensors"
    weights.write_bytes((ASSETS / "digits.safetensors").read_bytes())
    facts = {"mean": [0.5] * 3, "std": [0.5] * 3, "size": 32}
    write_card(weights, Card("os.path:join", 10, [], {}, facts, {}, 0))
    with pytest.raises(WeightsError, match="must not choose"):
        open_case(str(weights))


def test_several_adapters_on_the_same_batches(case: Case) -> None:
    stream = case.stream("independent", limit=64, batch_size=16)
    alone = {
        name: [
            steps[name].logits
            for _, steps in stream_through({name: case.adapter(name)}, case.items(stream))
        ]
        for name in ("source", "tent")
    }
    shared = copy.deepcopy(case.net)
    adapters = {"source": case.adapter("source"), "tent": lambda: case.adapter("tent")}
    seen = 0
    for number, (item, steps) in enumerate(stream_through(adapters, case.items(stream), shared)):
        assert isinstance(item, Item)
        assert all(torch.equal(steps[name].logits, alone[name][number]) for name in alone)
        seen += len(item.x)
    assert seen == stream.samples
    tent = case.adapter("tent")
    tent(item.x)
    assert share_frozen(tent, shared) > share_frozen(tent, shared) == 0


def test_weights_that_a_function_makes_are_part_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other weights from the same function are another run."""

    def hashed(seed: int) -> str:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            net = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
        monkeypatch.setattr(nets, "made", lambda: net, raising=False)
        return open_case(
            "nets:made", size=32, mean=[0.5] * 3, std=[0.5] * 3, device="cpu"
        ).weights_hash

    assert hashed(0) == hashed(0) != hashed(1)


@pytest.mark.filterwarnings("ignore:PACS in")
def test_source_images_are_below_the_root_when_the_data_is_a_folder(tmp_path: Path) -> None:
    places = ["images/3", *(f"root/PACS/photo/{name}" for name in PACS_CLASSES)]
    for place in places:
        (tmp_path / place).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / place / "a.png")
    data, root = (str(tmp_path / name) for name in ("images", "root"))
    case = open_case("digits", data, source="pacs", root=root, device="cpu")
    assert case.source_data.domains[0].name == "photo"
    (job,) = jobs_on(case, {"eata": {}})
    again = case_of(type(job).from_json(job.to_json()))
    assert (again.data_hash, again.source_data.names) == (case.data_hash, ["photo"])


def test_the_named_head_counts_the_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a model returns more than logits."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.last = nn.Flatten(), nn.Linear(3 * 8 * 8, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            z = self.body(x)
            return self.last(z), z

    monkeypatch.setattr(nets, "tupled", Two, raising=False)
    options: dict[str, Any] = {"size": 8, "mean": [0.5] * 3, "std": [0.5] * 3, "device": "cpu"}
    assert len(open_case("nets:tupled", head="last", **options).labels.names) == 4


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (lambda needed: nn.Identity(), "called with no argument: TypeError"),
        (nn.Identity(), "is a Identity; a function or class"),
        (lambda: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_functions_that_make_no_model(
    factory: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nets, "broken", factory, raising=False)
    with pytest.raises((ModelError, ConfigError), match=message):
        open_case("nets:broken", size=8, device="cpu")
