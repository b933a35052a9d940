"""What every method promises, on every kind of network, without its author doing anything."""

from __future__ import annotations

import copy
import io
import json
import pickle
import sys
from typing import Any

import pytest
import torch
from torch import nn

import fretta
from fretta.errors import FrettaError, NeedError
from fretta.method import Need
from fretta.methods import REGISTRY
from nets import BUILDERS, CLASSES, TIGHT, Wrapped, batches, build, grid, same, snapshot

pytestmark = pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")

# TEA with few steps; filters that let untrained networks pass: neither matters to what is tested.
QUICK: dict[str, dict[str, Any]] = {
    "tea": {"sgld_steps": 2, "buffer_size": 20},
    "eta": {"e_margin": 0.999, "d_margin": 0.99},
    "eata": {"e_margin": 0.999, "d_margin": 0.99},
    "sar": {"e_margin": 0.999, "reset_threshold": 0.0},
    "rdumb": {"e_margin": 0.999, "d_margin": 0.99},
    "deyo": {"e_margin": 0.999, "plpd_margin": -0.9},
    "delta": {"base": "entropy"},
    "cotta": {"views": 2, "p_th": 1.1},  # views at every batch
    "rotta": {"memory": 4, "update_every": 4},
    "note": {"memory": 4, "update_every": 4},
    "memo": {"views": 2},
    "auto": {"e_margin": 0.999},
}
WITHOUT_BATCH_NORM = ("group-norm", "vit-like", "timm-vit_tiny", "hf-vit")
FILTERS_ALL_OUT = {key: {"e_margin": 1e-9} for key in ("eta", "eata", "sar", "rdumb", "deyo")}

VARIANTS = {key: cls.variants for key, cls in sorted(REGISTRY.items())}
CASES = [(key, variant) for key, variants in VARIANTS.items() for variant in variants or (None,)]
every_case = pytest.mark.parametrize(("key", "variant"), CASES)
every_method = pytest.mark.parametrize("key", sorted(REGISTRY))


def fits(key: str, net: str) -> bool:
    return Need.BATCH_NORM not in REGISTRY[key].needs or net not in WITHOUT_BATCH_NORM


def every_case_on(*nets: str, small: tuple[str, ...] = ("resnet-like", "vit-like")) -> Any:
    """All methods on all of these networks; most large ones and other variants are slow tests, and
    so are features of zero for methods that do not look at them."""
    cases = [(net, key, variant) for key, variant in CASES for net in nets if fits(key, net)]
    first = {(key, variant) for key, variant in CASES if variant in (None, *VARIANTS[key][:1])}

    def quick(case: tuple[str, str, str | None]) -> bool:
        net, method = case[0], case[1:]
        telling = "zero" not in net or Need.HEAD in REGISTRY[case[1]].needs
        return (net in small and method in first and telling) or method == ("g-fret", "paper")

    return pytest.mark.parametrize(("net", "key", "variant"), grid(cases, quick))


def settings(key: str, variant: str | None = None, **more: Any) -> dict[str, Any]:
    values: dict[str, Any] = {**QUICK.get(key, {}), **more}
    if variant is not None:
        values["variant"] = variant
    if Need.SOURCE in REGISTRY[key].needs:
        values["source"] = batches(6, 6, seed=9)
    if "lr" in REGISTRY[key].field_names():
        values.setdefault("lr", 1e-2)  # large: a missing reset or state shows at once
    return values


def adapter(net: str, key: str, variant: str | None = None, **more: Any) -> fretta.Adapter:
    return fretta.adapt(build(net), key, **settings(key, variant, **more))


@every_case_on(*BUILDERS)
def test_life_of_an_adapter(net: str, key: str, variant: str | None) -> None:
    """One stream through everything: purity, shape, determinism, reset, save and load."""
    model = build(net)
    before = snapshot(model)
    stream = batches(6, 6, 4, 1, 5)  # a last partial batch and a batch of one
    adapted = fretta.adapt(model, key, **settings(key, variant))
    initial = adapted.state_dict()
    logits = []
    for step, x in enumerate(stream):
        logits.append(adapted(x))
        if step == 2:
            file = io.BytesIO()
            torch.save(adapted.state_dict(), file)
    for x, out in zip(stream, logits, strict=True):
        assert out.shape == (len(x), CLASSES)
        assert torch.isfinite(out).all()
        assert not out.requires_grad
    assert same(snapshot(model), before), "the user's model was touched"

    # only what the method says it adapts has changed
    changed = {
        name
        for name, tensor in adapted.model.net.state_dict().items()
        if not torch.equal(tensor, before["tensors"][name])  # type: ignore[index]
    }
    if adapted.model.statistics is not None:
        changed = {name for name in changed if "running_" not in name}
    assert changed <= set(adapted.adapted)
    assert bool(changed) == REGISTRY[key].gradient

    # predict changes nothing and reset is the initial state again
    state = adapted.state_dict()
    adapted.predict(stream[0])
    assert same(adapted.state_dict(), state), "predict changed the state"
    adapted.reset()
    assert all(torch.equal(adapted(x), out) for x, out in zip(stream, logits, strict=True))

    # stop in the middle and resume in a new adapter, from a file
    resumed = fretta.adapt(model, key, **settings(key, variant))
    file.seek(0)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert all(torch.equal(resumed(x), out) for x, out in zip(stream[3:], logits[3:], strict=True))
    assert same(resumed.state_dict(), state)
    resumed.load_state_dict(initial)
    assert torch.equal(resumed(stream[0]), logits[0])


@every_case_on("resnet-like", "vit-like", "group-norm", small=("resnet-like",))
def test_works_in_any_gradient_context(net: str, key: str, variant: str | None) -> None:
    plain = [adapter(net, key, variant)(x) for x in batches(6)]
    with torch.no_grad():
        quiet = [adapter(net, key, variant)(x) for x in batches(6)]
    with torch.inference_mode():
        a = adapter(net, key, variant)
        stream = batches(6, 6)  # inference tensors
        inference = [a(x) for x in stream]
    assert torch.equal(plain[0], quiet[0])
    assert torch.equal(plain[0], inference[0])
    (a(batches(6)[0]) * 2).add_(1)  # what came out can be used outside


@every_case_on(
    *("resnet-like", "nested-bn", "vit-like", "group-norm", "zero features", "some zero features"),
    small=("resnet-like", "vit-like", "zero features", "some zero features"),
)
def test_survives_hard_batches(net: str, key: str, variant: str | None) -> None:
    model = build("resnet-like" if "zero" in net else net)
    if "zero" in net:
        live = torch.arange(model.fc.in_features) > (5 if "some" in net else 99)
        model.fc.register_forward_pre_hook(lambda _, inputs: inputs[0] * live)
    a = fretta.adapt(model, key, **settings(key, variant))
    image = batches(1)[0]
    for x in (image, image.expand(6, -1, -1, -1), torch.zeros(4, 3, 32, 32), *batches(2, 6, 6)):
        assert torch.isfinite(a(x)).all()
    assert all(torch.isfinite(p).all() for p in a.model.parameters())
    assert torch.isfinite(a(batches(6)[0])).all()


@pytest.mark.parametrize("key", sorted(FILTERS_ALL_OUT))
def test_a_batch_that_is_filtered_out_changes_nothing(key: str) -> None:
    a = adapter("resnet-like", key, **FILTERS_ALL_OUT[key])
    x, y = batches(6, 6)
    a.predict(x)
    before = a.state_dict()
    a(x)
    a(y)
    after = a.state_dict()
    assert a.pass_rate == 0
    before["running"].pop("kept"), after["running"].pop("kept")  # the filter's own report
    assert (before.pop("batches"), after.pop("batches")) == (0, 2)
    assert before.pop("digest") != after.pop("digest")
    assert same(after, before)


@every_case_on("resnet-like", "group-norm", "timm-efficientnet")
def test_channels_last(net: str, key: str, variant: str | None) -> None:
    """A model and images in channels-last: no crash, and the same numbers.

    The numbers in float64: in float32 rounding tips filters, signs and the first step of Adam.
    """
    stream = batches(8, 8)
    last = torch.channels_last
    a = fretta.adapt(build(net).to(memory_format=last), key, **settings(key, variant))
    assert all(torch.isfinite(a(x.to(memory_format=last))).all() for x in stream)

    if (key, variant) == ("tipi", "released"):
        return  # follows the sign of a gradient that is zero up to rounding
    values = settings(key, variant, compute=fretta.Compute(layout="contiguous"))
    if "lr" in values:  # small steps: on an untrained network large ones are chaos in any precision
        values["lr"] = 1e-4
    if key == "tea":
        values["sgld_steps"] = 1
    if "source" in values:
        values["source"] = [x.double() for x in values["source"]]
    plain = fretta.adapt(build(net).double(), key, **values)
    values["compute"] = fretta.Compute(layout="channels_last")
    other = fretta.adapt(build(net).double().to(memory_format=last), key, **values)
    for x in stream:
        out = other(x.double().to(memory_format=last))
        torch.testing.assert_close(out, plain(x.double()), atol=TIGHT, rtol=TIGHT)


@every_method
def test_copies_pickles_and_moves_go_on_alike(key: str) -> None:
    x, y, z = batches(6, 6, 6)
    a = adapter("resnet-like", key, guard="rollback")
    a(x)
    twins = [
        copy.deepcopy(a),
        pickle.loads(pickle.dumps(a)),
        copy.deepcopy(a).to("cpu"),
        copy.deepcopy(a).double().float(),
    ]
    double = copy.deepcopy(a).double()  # everything follows to another dtype
    expected = [a(y), a(z)]
    for twin in twins:
        assert same([twin(y), twin(z)], expected)
        assert same(twin.model.adapted, a.model.adapted)
    assert double(y.double()).dtype is torch.float64
    assert all(t.dtype is torch.float64 for t in double.model.origin.values())
    double.reset()
    assert same(dict(double.model.adapted), double.model.origin)


# ---- the class itself --------------------------------------------------------------------------


@every_method
def test_fields_round_trip_through_json(key: str) -> None:
    cls = REGISTRY[key]
    method = cls()
    assert cls(**json.loads(json.dumps(method.hyperparameters()))) == method
    assert cls.__name__.lower() == key.replace("-", "")
    assert cls.summary


@every_method
def test_every_hyperparameter_is_read(key: str) -> None:
    """Each field is looked at by the code that adapts, in some variant."""
    cls = REGISTRY[key]
    read: set[str] = set()
    bookkeeping = {"hyperparameters", "resolved", "check", "caution", "implied", "<dictcomp>"}

    class Watched(cls):  # type: ignore[valid-type, misc]
        def __getattribute__(self, name: str) -> Any:
            if sys._getframe(1).f_code.co_name not in bookkeeping:
                read.add(name)
            return super().__getattribute__(name)

    for variant in cls.variants or (None,):
        values = settings(key, variant)
        source = values.pop("source", None)
        a = fretta.adapt(build("resnet-like"), Watched(**values), source=source)
        for x in batches(6, 6):
            a(x)
    fields = set(cls.field_names()) - {"variant"}  # read by `implied` alone where it is a preset
    assert fields <= read


@every_method
def test_unmet_needs_raise_with_a_repair(key: str) -> None:
    needs = REGISTRY[key].needs
    plain = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    if Need.NORM in needs:
        with pytest.raises(NeedError, match=r"normalization layers.*use 'source'"):
            fretta.adapt(plain, key, source=batches(4))
    if Need.BATCH_NORM in needs:
        with pytest.raises(NeedError, match=r"statistics of batch-norm layers.*LayerNorm.*use 'c"):
            fretta.adapt(build("vit-like"), key)
    if Need.SOURCE in needs:
        with pytest.raises(NeedError, match="source="):
            fretta.adapt(build("resnet-like"), key)
    if Need.HEAD in needs:
        with pytest.raises(FrettaError, match="head="):
            fretta.adapt(Wrapped(lambda y: y * 2.0), key, source=batches(4))(batches(4)[0])
