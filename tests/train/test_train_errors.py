"""Training refuses early and clearly, and overwrites nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from train_nets import NETS, StopError, stop_at

from fretta.data import Dataset
from fretta.errors import ConfigError, DataError, FrettaWarning, ModelError, WeightsError
from fretta.experiment.train import TrainConfig, train_source
from fretta.experiment.train.source import checkpoint_path
from fretta.models import load


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": "mnist"}, "data='mnist'; to train on there are digits"),
        ({"out": "m.pt"}, r"\.safetensors is expected"),
        ({"data": "pacs"}, "say which with target="),
        ({"target": "photo"}, "target='photo' has no effect on digits"),
        ({"iterations": 5}, "iterations=5 has no effect on digits"),
        ({"data": "pacs", "target": "photo", "epochs": 3}, "epochs=3 has no effect on pacs"),
        ({"epochs": 0}, "epochs=0"),
        ({"batch_size": 1}, "batch_size=1; a whole number from 2"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": None}, "seed=None"),
        ({"lr": 0.0}, r"lr=0\.0"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"momentum": 1.0}, r"momentum=1\.0"),
        ({"progressive": (16, 24)}, r"progressive=\(16, 24\); .* the last of them 32"),
        ({"progressive": True}, "progressive=True; sizes in pixels"),
        ({"cutout": -1}, "cutout=-1"),
        (
            {"data": "pacs", "target": "photo", "cutout": 8},
            "cutout=8 has no effect on pacs",
        ),
        ({"std": (0.0, 1.0, 1.0)}, "std above 0"),
        ({"data": "cifar10", "evaluate_every": 5}, "has no validation split"),
    ],
)
def test_settings_that_cannot_work(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**{"data": "digits", "out": "m.safetensors", **change})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": "cifar:resnet7"}, ConfigError, r"no network cifar:resnet7"),
        ({"model": f"{NETS}:fixed_size_net"}, ModelError, "does not take images of 32×32"),
        (
            {"model": f"{NETS}:fixed_size_net", "size": 8, "progressive": (4, 8)},
            ModelError,
            "4×4 pixels: .*; leave out progressive=",
        ),
        ({"model": f"{NETS}:wrong_head_net"}, ModelError, r"returns \(2, 3\)"),
        ({"device": "cuda:99"}, ConfigError, "device='cuda:99' cannot be used here"),
        ({"device": "toaster"}, ConfigError, "device='toaster'"),
        ({"init": "nowhere.safetensors"}, ConfigError, "is no weights file"),
        ({"init": "efficientnet-lite0"}, ConfigError, "belong to timm:tf_efficientnet_lite0"),
        ({"lr": 1e30}, ConfigError, r"training diverged: the loss is .* lower it"),
    ],
)
def test_runs_that_cannot_work(
    small: TrainConfig, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        train_source(replace(small, **change))
    assert not Path(small.out).exists()


def test_other_images_make_another_run(small: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StopError):
        train_source(small, progress=stop_at(20))
    with monkeypatch.context() as patch:
        patch.setattr(Dataset, "fingerprint", lambda self: "others")
        with pytest.raises(ConfigError, match=r"images: '\w+' then, 'others' now"):
            train_source(small, resume=True)
    train_source(small, resume=True)
    monkeypatch.setattr(Dataset, "fingerprint", lambda self: "others")
    with pytest.raises(ConfigError, match="exists and is of another run"):
        train_source(small, resume=True)


def test_nothing_is_overwritten_by_default(small: TrainConfig, tmp_path: Path) -> None:
    with pytest.raises(StopError):
        train_source(small, progress=stop_at(20))
    with pytest.raises(ConfigError, match=r"unfinished run; pass resume=True"):
        train_source(small)
    with pytest.raises(ConfigError, match=r"another run: .*seed: 0 then, 9 now"):
        train_source(replace(small, seed=9), resume=True)

    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "executed",))

    checkpoint_path(small.out).write_bytes(b"damaged")
    for content in (None, {"identity": Evil()}):
        if content is not None:
            torch.save(content, checkpoint_path(small.out))
        with pytest.raises(WeightsError, match="remove it to train from the beginning"):
            train_source(small, resume=True)
    assert not (tmp_path / "executed").exists()
    card = train_source(replace(small, overwrite=True))
    before = Path(small.out).read_bytes()
    with pytest.raises(ConfigError, match="exists"):
        train_source(small)
    with pytest.raises(ConfigError, match="exists and is of another run"):
        train_source(replace(small, lr=0.5), resume=True)
    assert train_source(small, resume=True, progress=stop_at(0)) == card  # it is finished
    assert Path(small.out).read_bytes() == before


def test_domain_sets_that_cannot_work(left_out: TrainConfig, stripes: Path) -> None:
    (stripes / "thin" / "down" / "3.png").write_bytes(b"no image")
    changes: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"target": "sketch"}, ConfigError, "'sketch' is no domain of folder; it has coarse, thin"),
        ({"limit": 2}, ConfigError, "too few to split"),
        ({"root": stripes / "nowhere"}, DataError, "does not exist"),
        ({"batch_size": 16}, DataError, r"unreadable image .*3\.png"),
    ]
    for change, error, message in changes:
        with pytest.raises(error, match=message):
            train_source(replace(left_out, **change))
    assert not Path(left_out.out).exists()


def test_a_missing_source_domain_is_warned_of(tmp_path: Path) -> None:
    from PIL import Image

    for domain in ("photo", "cartoon"):
        for name in ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"):
            folder = tmp_path / "PACS" / domain / name
            folder.mkdir(parents=True)
            Image.new("RGB", (20, 20)).save(folder / "a.png")
    config = TrainConfig(
        data="pacs",
        root=tmp_path,
        target="sketch",
        out=tmp_path / "p.safetensors",
        model=f"{NETS}:dropout_net",
        iterations=1,
        size=16,
    )
    with pytest.warns(FrettaWarning) as caught:
        card = train_source(config)
    assert any("lacks art_painting" in str(w.message) for w in caught)
    assert "target" not in card.accuracy  # the target itself is not on disk either
    assert load(config.model or "", weights=config.out)(torch.zeros(1, 3, 16, 16)).shape == (1, 7)
