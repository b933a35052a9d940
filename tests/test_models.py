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

import fretta
from fretta.errors import ConfigError, MissingExtraError, ModelError, WeightsError
from nets import CLASSES, batches, build, hf_vit

X = batches(2)[0]


def toy(num_classes: int = CLASSES) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, num_classes))


def not_a_model() -> str:
    return "hello"


@pytest.mark.parametrize("spec", ["timm:resnet18", "torchvision:resnet18"])
def test_libraries(spec: str) -> None:
    model = fretta.models.load(spec, num_classes=7)
    assert not model.training
    assert model(X).shape == (2, 7)


def test_hugging_face_folder(tmp_path: Path) -> None:
    net = hf_vit().eval()
    net.save_pretrained(tmp_path)
    model = fretta.models.load(f"hf:{tmp_path}")
    assert torch.equal(model(X).logits, net(X).logits)
    with pytest.raises(WeightsError, match="num_classes=3"):
        fretta.models.load(f"hf:{tmp_path}", num_classes=3)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match="has no weights"):
        fretta.models.load(f"hf:{tmp_path}", pretrained=True)
    torch.save(net.state_dict(), tmp_path / "pytorch_model.bin")
    assert torch.equal(fretta.models.load(f"hf:{tmp_path}")(X).logits, net(X).logits)
    (tmp_path / "pytorch_model.bin").unlink()
    assert fretta.models.load(f"hf:{tmp_path}", num_classes=3)(X).logits.shape == (2, 3)
    with pytest.raises(ConfigError, match=r"config\.json"):
        fretta.models.load(f"hf:{tmp_path / 'nowhere'}")


def test_factory() -> None:
    assert fretta.models.load("test_models:toy", num_classes=4)(torch.ones(1, 3, 2, 2)).shape == (
        1,
        4,
    )


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("resnet18", ConfigError, "write .*timm:NAME"),
        ("timm:", ConfigError, "write .*timm:NAME"),
        ("timm:resnet18x", ConfigError, "timm has no model 'resnet18x'"),
        ("timm:resnet1", ConfigError, "near it are .*resnet1"),
        ("torchvision:resnet19", ConfigError, "torchvision has no model"),
        ("no.such.module:factory", ConfigError, "No module named"),
        ("test_models:nothing", ConfigError, "has no 'nothing'"),
        ("test_models:CLASSES", ConfigError, "is a int, not a callable"),
        ("test_models:not_a_model", ModelError, "returned a str"),
    ],
)
def test_specs_that_do_not_work(spec: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fretta.models.load(spec)


def test_missing_extra_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda n, *a: None if n in ("timm", "transformers") else real(n, *a),
    )
    with pytest.raises(MissingExtraError, match=r"pip install 'fretta\[timm\]'"):
        fretta.models.load("timm:resnet18")
    with pytest.raises(MissingExtraError, match=r"pip install 'fretta\[hf\]'"):
        fretta.models.load("hf:somewhere")


# ---- weights -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"state_dict": s, "epoch": 3}])
@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
def test_weights_round_trip(tmp_path: Path, suffix: str, wrap: Any) -> None:
    net = toy()
    path = tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(net.state_dict(), path)
    else:
        parallel = {f"module.{k}": v for k, v in net.state_dict().items()}
        torch.save(wrap(parallel), path)
    again = fretta.models.load("test_models:toy", weights=path)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))


class Attack:
    """Unpickling this would create a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.target),))


@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_a_pickle_that_wants_to_execute_code_is_refused(tmp_path: Path, how: str) -> None:
    path, target = tmp_path / "weights.pt", tmp_path / "owned"
    content = {"linear.weight": torch.ones(1), "payload": Attack(target)}
    if how == "torch":
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content))
    with pytest.raises(WeightsError, match=r"refused.*execute code|cannot be read"):
        fretta.models.load("test_models:toy", weights=path)
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
    with pytest.raises(WeightsError, match=message):
        fretta.models.load("test_models:toy", weights=tmp_path / "weights.pt")


def test_files_that_are_no_weights(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"nonsense")
    (tmp_path / "a.pt").write_bytes(b"nonsense")
    (tmp_path / "empty.pt").write_bytes(b"")
    (tmp_path / "a.onnx").write_bytes(b"")
    for name, message in [
        ("a.safetensors", "not a safetensors file"),
        ("a.pt", "refused|cannot be read"),
        ("empty.pt", "cannot be read"),
        ("a.onnx", r"ending '\.onnx'"),
        ("missing.pt", "no weights file"),
    ]:
        with pytest.raises(WeightsError, match=message):
            fretta.models.read_weights(tmp_path / name)


def test_wrong_weights_leave_the_model_alone(tmp_path: Path) -> None:
    net = build("resnet-like")
    before = {k: v.clone() for k, v in net.state_dict().items()}
    save_file({**before, "fc.weight": torch.zeros(3, 3)}, tmp_path / "w.safetensors")
    with pytest.raises(WeightsError):
        fretta.models.load_weights(net, tmp_path / "w.safetensors")
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


@pytest.mark.parametrize("seed", range(12))
def test_any_bytes_called_pt_are_refused(seed: int, tmp_path: Path) -> None:
    """A damaged or foreign file ends in a WeightsError, never in an error from inside torch."""
    chance = random.Random(seed)
    start = (b"", b"\x80\x02", b"\x80\x02}q\x00(", b"PK\x03\x04")[seed % 4]
    file = tmp_path / "junk.pt"
    file.write_bytes(start + bytes(chance.randrange(256) for _ in range(60)))
    with pytest.raises(WeightsError, match=r"refused|cannot be read|not a state dict|holds a"):
        fretta.models.load("cifar:resnet20", weights=file, num_classes=10)


def test_factories_are_found_where_the_user_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with python -m; the fretta script has its own folder on the path, not the user's."""
    elsewhere = [p for p in sys.path if Path(p or ".").resolve() != Path.cwd()]
    monkeypatch.setattr(sys, "path", elsewhere)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"'shop'; .*current folder.*PYTHONPATH"):
        fretta.models.load("shop:net")
    Path("shop.py").write_text(
        "from torch import nn\n\ndef net():\n    import shelf\n\n    return shelf.layer()\n"
    )
    Path("shelf.py").write_text("from torch import nn\n\ndef layer():\n    return nn.Identity()\n")
    importlib.invalidate_caches()
    assert isinstance(fretta.models.load("shop:net"), nn.Identity)
    Path("wants.py").write_text("import no_such_thing\n")
    importlib.invalidate_caches()
    with pytest.raises(ConfigError, match="wants more: No module named 'no_such_thing'") as caught:
        fretta.models.load("wants:net")
    assert "PYTHONPATH" not in str(caught.value)
    for name in ("shop", "shelf"):
        sys.modules.pop(name)
