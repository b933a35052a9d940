"""Export: a plain module that predicts as the adapter does, and goes where plain modules go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fretta
from fretta.data import Preprocessing, make_stream, open_dataset
from fretta.errors import ConfigError, FrettaWarning, InputError, ModelError, StateError
from fretta.export import to_onnx, to_program
from fretta.methods import REGISTRY
from fretta.models import load_source
from nets import ResNetLike, ViTLike, Wrapped, batches, build, same, snapshot, with_rounding_noise
from test_conformance import fits, settings

quiet = pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
tracing = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def adapted(net: str, key: str, dtype: torch.dtype = torch.float32, **more: Any) -> fretta.Adapter:
    a = fretta.adapt(build(net).to(dtype), key, **settings(key, **more))
    for x in batches(6, 6, 6):
        a(x.to(dtype))
    return a


def alike(a: Tensor, b: Tensor) -> bool:
    """Equal but for the rounding of float64 in one forward."""
    assert a.dtype == torch.float64
    return torch.allclose(a, b, atol=1e-10, rtol=1e-10)


@quiet
@pytest.mark.parametrize("net", ["resnet-like", "vit-like"])
@pytest.mark.parametrize("key", sorted(REGISTRY))
def test_predicts_bit_for_bit_as_the_adapter(net: str, key: str) -> None:
    if not fits(key, net):
        return
    hedge = {"hedge": False} if "hedge" in REGISTRY[key].field_names() else {}
    a = adapted(net, key, **hedge)
    state, inside = a.state_dict(), snapshot(a.model.net)
    if a.method.batch_share is None or a.method.output not in (None, "none"):
        with pytest.raises(ConfigError, match="which a plain module cannot do"):
            a.export()
        return
    module = a.export()
    with torch.no_grad():
        for x in batches(6, 9, seed=3):
            assert torch.equal(module(x), a.predict(x))
    assert not any(p.requires_grad for p in module.parameters())
    assert not any(m.training for m in module.modules())
    for part in module.modules():
        assert not type(part).__module__.startswith("fretta")
        assert not part._forward_pre_hooks
        assert not part._forward_hooks
    # a deep copy: whatever happens to either does not reach the other
    a(batches(6, seed=4)[0])
    if REGISTRY[key].gradient:
        assert not torch.equal(module(x), a.predict(x))
    a.load_state_dict(state)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    assert same(snapshot(a.model.net), inside)


@quiet
@pytest.mark.parametrize(("net", "cls"), [("resnet-like", ResNetLike), ("vit-like", ViTLike)])
@pytest.mark.parametrize("key", ["tent", "tsd", "source"])
def test_weights_load_into_the_users_own_class(
    net: str, cls: type[nn.Module], key: str, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    a = adapted(net, key)
    module = a.export(statistics=batches(16, 16))
    assert list(module.state_dict()) == list(build(net).state_dict())
    save_file(module.state_dict(), tmp_path / "model.safetensors")
    mine = cls()
    mine.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=True)
    x = batches(5, seed=7)[0]
    with torch.no_grad():
        assert torch.equal(mine.eval()(x), module(x))
        assert module(x[:1]).shape == (1, 5)  # single images work


def test_statistics_are_those_of_all_images() -> None:
    """Measured batch by batch, they are what one large batch would give in the first layer."""
    a = adapted("resnet-like", "tent", torch.float64)
    images = [x.double() for x in batches(8, 24)]
    module = a.export(statistics=[(x, None) for x in images])  # pairs are fine too
    with torch.no_grad():
        z = a.model.net.conv1(torch.cat(images))
    assert alike(module.bn1.running_mean, z.mean((0, 2, 3)))
    assert alike(module.bn1.running_var, z.var((0, 2, 3), correction=0))
    one = a.export(statistics=[images[0]])  # measured on this batch: predicts it alike
    with torch.no_grad():
        assert alike(one(images[0]), a.predict(images[0]))
    mixed = adapted("resnet-like", "bn", torch.float64, alpha=0.5)
    with pytest.raises(ConfigError, match=r"mixes the statistics"):
        mixed.export()
    with torch.no_grad():
        assert alike(mixed.export(statistics=[images[1]])(images[1]), mixed.predict(images[1]))


@pytest.mark.parametrize("key", ["bn", "tent", "auto", "stein"])
def test_a_fixed_share_of_the_batch_is_measured(key: str) -> None:
    a = adapted("resnet-like", key, torch.float64, statistics=0.5)
    with pytest.raises(ConfigError, match=r"mixes the statistics"):
        a.export()
    x = batches(6, seed=1)[0].double()
    with torch.no_grad():
        assert alike(a.export(statistics=[x])(x), a.predict(x))
        assert not alike(a.predict(x), a.source_logits(x))
        none = adapted("resnet-like", key, torch.float64, statistics=0.0)
        assert alike(none.export()(x), none.predict(x))


def test_refusals() -> None:
    with pytest.raises(StateError, match="has not seen a batch"):
        fretta.adapt(build("resnet-like"), "tent").export()
    a = adapted("resnet-like", "tent")
    with pytest.raises(ConfigError, match="statistics='running'"):
        a.export("running")
    for adapter in (a, adapted("resnet-like", "auto"), adapted("resnet-like", "stein")):
        with pytest.raises(InputError, match="no images"):
            adapter.export([])
    for wrong in (batches(6)[0], 512):
        with pytest.raises(InputError, match="no iterable of batches"):
            a.export(wrong)  # type: ignore[arg-type]
    module = a.export()
    with pytest.raises(InputError, match="at least two"):
        to_program(module, batches(1)[0])
    with pytest.raises(ModelError, match="export"):
        to_program(a, batches(2)[0])  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["auto", "stein"])
def test_a_mix_of_two_models_is_not_exported_in_silence(key: str) -> None:
    a = adapted("resnet-like", key, torch.float64)
    x = batches(6)[0].double()
    for weight, counts, alone in ((0.6, 40, "adapted"), (0.4, 60, "source")):
        a.method.gate.weight = weight
        with pytest.warns(FrettaWarning, match=f"counts {counts} %.* the {alone} model"):
            a.export()
    for weight in (0.999, 0.001):  # the adapter lets one of them predict: no word
        a.method.gate.weight = weight
        assert alike(a.export()(x), a.predict(x))
    a.method.gate.weight = 0.9  # few labels differ
    a.export()
    a.reset()  # nothing to mix yet
    assert alike(a.export()(x).log_softmax(1), a.predict(x))
    vit = adapted("vit-like", "auto", torch.float64)  # no batch norm: nothing is mixed
    assert alike(vit.export()(x), vit.predict(x))


@pytest.mark.parametrize("key", ["auto", "stein"])
def test_images_decide_whether_the_source_model_is_exported(key: str) -> None:
    """What was learned from the last batch no later one has judged."""
    net, card = load_source("digits")
    preprocessing = Preprocessing.from_json(card.preprocessing)
    clean = make_stream(open_dataset("digits", corruption=None), "continual", batch_size=64)
    x, *images = (preprocessing.apply(batch.x).double() for batch in clean)
    a = fretta.adapt(net.double(), key)
    a(x)
    gate = vars(a.method)["gate"]
    gate.weight = 0.999
    statistics = a.model.statistics
    assert statistics is not None
    mean, var = statistics.used
    statistics.commit(statistics.memory, (mean, 16 * var))
    assert alike(a.export()(x), a.predict(x))
    assert not alike(a.predict(x), a.source_logits(x))
    with pytest.warns(FrettaWarning, match="exported is the source model"):
        module = a.export(statistics=images)
    assert alike(module(x), a.source_logits(x))
    assert gate.weight == 0.999  # nothing is remembered


@tracing
def test_torch_export_takes_any_batch_size() -> None:
    x, statistics, *others = (x.double() for x in batches(6, 16, 3, 17))
    a = fretta.adapt(load_source("digits")[0].double(), "tent")
    a(x)
    for module in (a.export(), a.export(statistics=[statistics])):
        program = to_program(module, x).module()
        with torch.no_grad():
            assert all(alike(program(other), module(other)) for other in others)
    fickle = Wrapped(lambda y: y * 2 if float(y.sum()) > 0 else y)  # depends on the images
    with pytest.raises(ModelError, match=r"torch\.export cannot take Wrapped"):
        to_program(fickle.double().eval(), x)


@tracing
@pytest.mark.slow
@pytest.mark.parametrize("net", ["digits", "timm-resnet18", "dict"])
def test_onnx_predicts_alike(net: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    if net == "dict":
        model: nn.Module = Wrapped(lambda y: {"logits": y, "other": torch.zeros(6, 6)}).eval()
    else:
        model = load_source("digits")[0] if net == "digits" else build(net)
    a = fretta.adapt(model, "tent")
    for x in batches(6, 6):
        a(x)
    module = a.export(statistics=batches(16))

    @torch.no_grad()
    def forward(net: nn.Module, stream: list[Tensor]) -> Tensor:
        return torch.cat([net(x) for x in stream])

    others = batches(1, 9, seed=2)
    expected, noise = with_rounding_noise(forward, module, others)
    path = to_onnx(module, x, tmp_path / "model.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]
    session = onnxruntime.InferenceSession(str(path))
    logits = [session.run(["logits"], {"images": x.numpy()})[0] for x in others]
    change = (torch.cat([torch.from_numpy(out) for out in logits]) - expected).abs()
    assert change.max() <= 10 * noise
    traced = forward(to_program(module, x).module(), others)
    assert (traced - expected).abs().max() <= 10 * noise
