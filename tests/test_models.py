"""Models by name, and weights files that cannot execute code."""

from __future__ import annotations

import importlib
import os
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fretta.errors import ConfigError, MissingExtraError, ModelError, WeightsError
from fretta.models import load, load_weights, read_weights
from nets import CLASSES, batches, hf_vit

X = batches(2)[0]


def toy(num_classes: int = CLASSES) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, num_classes))


def not_a_model() -> str:
    return "hello"


@pytest.mark.parametrize("spec", ["timm:resnet18", "torchvision:resnet18", "test_models:toy"])
def test_libraries_and_factories(spec: str) -> None:
    model = load(spec, num_classes=7)
    assert not model.training
    assert model(X if ":resnet" in spec else torch.ones(2, 3, 2, 2)).shape == (2, 7)


def test_hugging_face_folder(tmp_path: Path) -> None:
    net, spec = hf_vit().eval(), f"hf:{tmp_path}"
    net.save_pretrained(tmp_path)
    assert torch.equal(load(spec)(X).logits, net(X).logits)
    with pytest.raises(WeightsError, match="num_classes=3"):
        load(spec, num_classes=3)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match="has no weights"):
        load(spec, pretrained=True)
    torch.save(net.state_dict(), tmp_path / "pytorch_model.bin")
    assert torch.equal(load(spec)(X).logits, net(X).logits)
    (tmp_path / "pytorch_model.bin").unlink()
    assert load(spec, num_classes=3)(X).logits.shape == (2, 3)
    with pytest.raises(ConfigError, match=r"config\.json"):
        load(f"hf:{tmp_path / 'nowhere'}")


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("resnet18", ConfigError, "timm:NAME"),
        ("timm:", ConfigError, "timm:NAME"),
        ("timm:resnet1", ConfigError, "no model 'resnet1'; .*resnet1"),
        ("torchvision:resnet19", ConfigError, "torchvision has no model.*near it are.*resnet18"),
        ("timm:resnet19", ConfigError, "timm has no model.*near it are.*resnet18"),
        ("no.such.module:factory", ConfigError, "No module named"),
        ("test_models:nothing", ConfigError, "has no 'nothing'"),
        ("test_models:CLASSES", ConfigError, "is a int; a function or class"),
        ("test_models:not_a_model", ModelError, "returned a str"),
    ],
)
def test_specs_that_do_not_work(spec: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load(spec)


@pytest.mark.parametrize(("library", "extra"), [("timm", "timm"), ("transformers", "hf")])
def test_missing_extra(library: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *a: None if n == library else real(n, *a)
    )
    with pytest.raises(MissingExtraError, match=rf"extra '{extra}'; .*'\.\[{extra}\]'"):
        load(f"{extra}:resnet18")


def test_factories_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with python -m; the fretta script has its own folder on the path, not the user's."""
    elsewhere = [p for p in sys.path if Path(p or ".").resolve() != Path.cwd()]
    monkeypatch.setattr(sys, "path", elsewhere)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"'shop'; .*current folder.*PYTHONPATH"):
        load("shop:net")
    Path("shop.py").write_text("def net():\n    import shelf\n\n    return shelf.layer()\n")
    Path("shelf.py").write_text("from torch import nn\n\nlayer = nn.Identity\n")
    Path("wants.py").write_text("import no_such_thing\n")
    importlib.invalidate_caches()
    assert isinstance(load("shop:net"), nn.Identity)
    with pytest.raises(ConfigError, match="wants more: No module named 'no_such_thing'") as caught:
        load("wants:net")
    assert "PYTHONPATH" not in str(caught.value)
    for name in ("shop", "shelf"):
        sys.modules.pop(name)


# ---- weights -----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
def test_weights_round_trip(tmp_path: Path, suffix: str) -> None:
    net, path = toy(), tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(net.state_dict(), path)
    else:
        parallel = {f"module.{k}": v for k, v in net.state_dict().items()}
        torch.save(parallel if suffix == ".pt" else {"state_dict": parallel, "epoch": 3}, path)
    again = load("test_models:toy", weights=path)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))


class Attack:
    """Unpickling this would create a folder."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.target),))


@pytest.mark.parametrize("writer", ["torch", "pickle"])
def test_a_pickle_that_wants_to_execute_code_is_refused(tmp_path: Path, writer: str) -> None:
    path, target = tmp_path / "weights.pt", tmp_path / "owned"
    content = {"linear.weight": torch.ones(1), "payload": Attack(target)}
    if writer == "torch":
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content))
    with pytest.raises(WeightsError, match=r"refused.*execute code|cannot be read"):
        load("test_models:toy", weights=path)
    assert not target.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"0.weight": torch.ones(1)}, "missing.*unknown"),
        ({**toy(9).state_dict()}, "num_classes"),
        ([torch.ones(1)], "not a state dict"),
        ({"epoch": 3}, r"\['epoch'\] are not named tensors"),
        ({}, "not a state dict"),
    ],
)
def test_weights_that_do_not_fit(tmp_path: Path, content: Any, message: str) -> None:
    torch.save(content, tmp_path / "weights.pt")
    net = toy()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    with pytest.raises(WeightsError, match=message):
        load_weights(net, tmp_path / "weights.pt")
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.safetensors", "not a safetensors file"),
        ("a.pt", "refused|cannot be read"),
        ("a.onnx", r"ending '\.onnx'"),
        ("missing.pt", "no weights file"),
    ],
)
def test_files_that_are_no_weights(tmp_path: Path, name: str, message: str) -> None:
    for file in ("a.safetensors", "a.pt", "a.onnx"):
        (tmp_path / file).write_bytes(b"nonsense")
    with pytest.raises(WeightsError, match=message):
        read_weights(tmp_path / name)


@pytest.mark.parametrize("seed", range(12))
def test_any_bytes_called_pt_are_refused(seed: int, tmp_path: Path) -> None:
    """A damaged or foreign file ends in a WeightsError, never in an error from inside torch."""
    chance, file = random.Random(seed), tmp_path / "junk.pt"
    start = (b"", b"\x80\x02", b"\x80\x02}q\x00(", b"PK\x03\x04")[seed % 4]
    file.write_bytes(start + bytes(chance.randrange(256) for _ in range(60 if seed else 0)))
    with pytest.raises(WeightsError, match=r"refused|cannot be read|not a state dict|holds a"):
        read_weights(file)
