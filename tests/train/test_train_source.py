"""Training: it learns, and it resumes to the same weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from train_nets import NETS, SIZES, StopError, dropout_net, stop_at

from fretta.errors import ConfigError
from fretta.experiment.train import Progress, TrainConfig, train_source
from fretta.experiment.train.config import DEFAULTS
from fretta.experiment.train.source import checkpoint_path, image_size, learning_rate
from fretta.models import load_source, read_card
from fretta.models.cards import sha256
from fretta.parts.compute import check_precision


def test_a_quick_run_on_digits(tmp_path: Path) -> None:
    out = tmp_path / "new" / "digits.safetensors"
    seen: list[Progress] = []
    config = TrainConfig(data="digits", out=out, epochs=4, lr=0.05, seed=3)
    before = torch.get_rng_state()
    card = train_source(config, progress=seen.append)
    assert torch.equal(torch.get_rng_state(), before)  # the user's generator is left alone
    assert sorted(p.name for p in out.parent.iterdir()) == ["digits.json", "digits.safetensors"]
    assert card == read_card(out)
    assert card.sha256 == sha256(out)
    assert card.accuracy["test"] > 0.5  # chance is 0.1
    assert card.data["images"] == {
        "train": {"clean": 1078},
        "val": {"clean": 179},
        "test": {"clean": 540},
    }
    assert card.seed == card.training["settings"]["seed"] == 3
    assert {"fretta", "torch", "python"} <= card.versions.keys()
    assert str(tmp_path) not in json.dumps(card.to_json())
    assert [p.step for p in seen] == [10, 20, 30, 40, 50, 60, 67]  # 4 · 1078 // 64
    assert seen[-1].loss < seen[0].loss
    assert seen[0].lr > seen[-1].lr > 0
    model, again = load_source(out)
    assert again == card
    assert not model.training


def test_resumed_weights_are_those_of_an_undisturbed_run(small: TrainConfig) -> None:
    train_source(small)
    complete = Path(small.out).read_bytes()
    other = replace(small, out=Path(small.out).with_name("n.safetensors"))
    for step in (20, 30):  # of 30, checkpoints after 10 and 20; interrupted twice
        with pytest.raises(StopError):
            train_source(other, resume=True, progress=stop_at(step))
        torch.rand(7)
        assert checkpoint_path(other.out).is_file()
        assert not Path(other.out).exists()
    steps: list[int] = []
    train_source(other, resume=True, progress=lambda now: steps.append(now.step))
    assert steps == [30]
    assert Path(other.out).read_bytes() == complete
    assert not checkpoint_path(other.out).exists()
    train_source(replace(other, seed=1, overwrite=True))
    assert Path(other.out).read_bytes() != complete


@pytest.mark.slow
def test_leave_one_domain_out(left_out: TrainConfig) -> None:
    seen: list[Progress] = []
    card = train_source(left_out, progress=seen.append)
    assert card.classes == ["across", "down"]
    assert card.data["images"] == {
        "train": {"thin": 16, "wide": 16},
        "val": {"thin": 4, "wide": 4},
        "target": {"coarse": 20},
    }
    validated = {p.step: p.accuracy for p in seen if p.accuracy is not None}
    assert list(validated) == [10, 20, 30, 40]
    best = max(validated.values())
    assert card.accuracy["val"] == pytest.approx(best, abs=1e-6)
    assert card.training["selected_step"] == next(s for s, a in validated.items() if a == best)
    assert best >= 0.75
    assert 0.5 <= card.accuracy["target"] <= 1
    mean = (card.accuracy["val/thin"] + card.accuracy["val/wide"]) / 2
    assert card.accuracy["val"] == pytest.approx(mean, abs=1e-6)
    complete = Path(left_out.out).read_bytes()

    again = replace(left_out, out=Path(left_out.out).with_name("t.safetensors"))
    with pytest.raises(StopError):
        train_source(again, progress=stop_at(40))
    train_source(again, resume=True)
    assert Path(again.out).read_bytes() == complete


@pytest.mark.slow
def test_workers_and_the_shipped_model(left_out: TrainConfig, tmp_path: Path) -> None:
    config = replace(left_out, iterations=4, evaluate_every=4, model="digits:resnet8", size=32)
    first = train_source(config)
    assert first.sha256 == train_source(replace(config, workers=1, overwrite=True)).sha256
    card = train_source(TrainConfig(data="digits", out=tmp_path / "digits.safetensors"))
    assert card.accuracy["test"] >= 0.97
    assert card.training["settings"] == load_source("digits")[1].training["settings"]


def test_start_from_weights(small: TrainConfig, tmp_path: Path) -> None:
    """A learning rate near zero leaves the body where it began, under a head of another size."""
    start, begin = tmp_path / "start.safetensors", dropout_net(num_classes=4)
    save_file(begin.state_dict(), start)
    card = train_source(replace(small, init=start, lr=1e-12, epochs=1, weight_decay=0.0))
    model = load_source(small.out)[0]
    assert torch.allclose(
        model.get_submodule("0").weight, begin.get_submodule("0").weight, atol=1e-6
    )
    assert model.get_submodule("6").out_features == 10
    assert card.training["settings"]["init"] == f"start.safetensors sha256:{sha256(start)[:16]}"


def test_defaults_and_schedule() -> None:
    pacs = TrainConfig(data="pacs", out="x.safetensors", target="photo").resolved()
    assert (pacs.iterations, pacs.batch_size, pacs.lr, pacs.size) == (5000, 32, 5e-5, 224)
    assert pacs.evaluate_every == 100
    assert {learning_rate(pacs, s, 100) for s in (0, 50, 99)} == {5e-5}
    digits = TrainConfig(data="digits", out="x.safetensors").resolved()
    assert all(getattr(digits, name) is not None for name in DEFAULTS["digits"])
    assert [learning_rate(digits, s, 100) for s in (0, 50)] == pytest.approx([0.1, 0.05])
    cycle = TrainConfig("digits", "d.safetensors", lr=0.1, schedule="one-cycle").resolved()
    rates = [learning_rate(cycle, s, 100) for s in (0, 24, 62, 99)]  # up, the top, half, the end
    assert rates == pytest.approx([0.004, 0.1, 0.05, 0.1 / 76])
    growing = replace(cycle, progressive=(16, 24, 32))
    assert [image_size(growing, s, 99) for s in (0, 32, 33, 65, 66, 98)] == [
        *(16, 16, 24, 24, 32, 32)
    ]
    assert image_size(cycle, 0, 99) == 32
    assert "precision" not in digits.settings()  # cards from before it existed stay valid


def test_progressive_resizing_begins_with_small_images(small: TrainConfig) -> None:
    SIZES.clear()
    growing = replace(small, model=f"{NETS}:sizes_net", progressive=(16, 24, 32))
    card = train_source(growing)
    assert SIZES == [16] * 10 + [24] * 10 + [32] * 10
    assert card.training["settings"]["progressive"] == [16, 24, 32]
    assert card.preprocessing["size"] == 32


def test_bfloat16_trains_too(small: TrainConfig) -> None:
    try:
        check_precision("bfloat16", torch.device("cpu"))
    except ConfigError as error:  # some virtual machines announce instructions they cannot run
        pytest.skip(str(error))
    card = train_source(replace(small, precision="bfloat16", schedule="one-cycle"))
    assert card.training["settings"]["precision"] == "bfloat16"
    assert card.accuracy["test"] > 0


def test_a_run_that_stops_between_weights_and_card_goes_on(
    small: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short it was."""
    config = replace(small, checkpoint_every=10_000)
    expected = train_source(replace(config, out=f"{small.out}.other.safetensors"))

    def full(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr("fretta.experiment.train.source.write_card", full)
        with pytest.raises(OSError, match="no space"):
            train_source(config)
    assert Path(config.out).is_file()
    assert train_source(config, resume=True).sha256 == expected.sha256
