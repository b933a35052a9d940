"""The adapter: timing, steps, episodes, in-place, state, and values that variants imply."""

from __future__ import annotations

import copy
import math
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fretta
from fretta.errors import FrettaWarning, InputError, ModelError, StateError
from fretta.method import GradientMethod
from fretta.methods import EATA, GFRET, SAR, gfret_released
from fretta.parts.filters import published_margin
from nets import CLASSES, Wrapped, batches, build, same, snapshot

X, Y = batches(6, 6)
quiet = pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")


@pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
def test_before_and_after() -> None:
    source = fretta.adapt(build("resnet-like"), "bn")(X)
    before = fretta.adapt(build("resnet-like"), "tent", lr=1e-2)
    after = fretta.adapt(build("resnet-like"), "tent", lr=1e-2, predict="after")
    assert torch.equal(before(X), source)
    assert torch.equal(after(X), before.predict(X))
    assert not torch.equal(before.predict(X), source)
    for key, values in (("tipi", {}), ("tea", {"sgld_steps": 1, "buffer_size": 8})):
        adapter = fretta.adapt(build("resnet-like"), key, lr=1e-2, **values)
        assert adapter.timing == "after"  # as published
        assert torch.equal(adapter(X), adapter.predict(X))


def test_steps_and_episodes() -> None:
    """Two steps on a batch are two calls on it; an episode forgets what it learned."""
    once = fretta.adapt(build("resnet-like"), "tent", lr=1e-2)
    twice = fretta.adapt(build("resnet-like"), "tent", lr=1e-2, steps=2)
    once(X)
    assert torch.equal(twice(X), once(X))
    assert same(twice.state_dict()["adapted"], once.state_dict()["adapted"])
    episodic = fretta.adapt(build("resnet-like"), "g-fret", lr=1e-2, episodic=True, predict="after")
    first = episodic(X)
    episodic(Y)
    assert torch.equal(episodic(X), first)


@quiet
@pytest.mark.parametrize("episodic", [True, "image"])
@pytest.mark.parametrize("statistics", [None, "moving"])
def test_an_episode_is_forgotten_before_a_prediction(
    episodic: bool | str, statistics: str | None
) -> None:
    """Between two batches the initial state predicts; health is still that of the last batch."""
    settings = {"lr": 1e-2, "episodic": episodic, "statistics": statistics, "head": "fc"}
    a, b, fresh = (fretta.adapt(build("resnet-like"), "tent", **settings) for _ in range(3))
    a(X), b(X)
    state, initial = a.state_dict(), fresh.predict(Y)
    assert not same(state["adapted"], fresh.state_dict()["adapted"])
    assert torch.equal(a.predict(Y), initial)
    assert same(a.features(Y), fresh.features(Y))
    with torch.no_grad():
        assert torch.equal(a.export()(Y), initial)
    assert same(a.state_dict(), state)
    assert a.health == b.health
    assert a.health is not None
    assert a.health.drift != 0
    assert torch.equal(a(Y), b(Y))


@quiet
@pytest.mark.parametrize("key", ["tent", "memo", "auto", "s-fret", "shot-im"])
def test_it_learns_where_a_class_cannot_be(key: str) -> None:
    """Its logit is -inf, and everything is finite all the same."""
    no = torch.tensor([-torch.inf, *[0.0] * (CLASSES - 1)])
    margin = {"e_margin": 0.999} if key == "auto" else {}
    adapter = fretta.adapt(Wrapped(lambda logits: logits + no), key, head="net.fc", **margin)
    first = {name: value.clone() for name, value in adapter.named_parameters()}
    assert torch.isfinite(adapter(X)[:, 1:]).all()
    moved = [name for name, p in adapter.named_parameters() if not torch.equal(p, first[name])]
    assert moved
    assert all(torch.isfinite(p).all() for p in adapter.parameters())


@quiet
@pytest.mark.parametrize("key", ["t3a", "tsd"])
def test_features_of_an_episode_are_those_of_the_batch(key: str) -> None:
    """These methods begin with the head's own weights, more rows than the batch has."""
    x = batches(CLASSES + 3)[0]
    adapter = fretta.adapt(build("resnet-like"), key, episodic=True, head="fc")
    adapter(x)
    z, logits = adapter.features(x)
    assert (len(z), len(logits)) == (len(x), len(x))
    with torch.no_grad():
        plain = fretta.adapt(build("resnet-like"), key, head="fc")
        plain.learner.prepare(x)
        torch.testing.assert_close(z, plain.features(x)[0])


@quiet
def test_an_episode_survives_a_prediction_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = fretta.adapt(build("resnet-like"), "tent", lr=1e-2, episodic=True)
    adapter(X)
    before = adapter.state_dict()

    def interrupted() -> None:
        adapter.model.restore()
        raise KeyboardInterrupt

    monkeypatch.setattr(adapter.learner, "start_over", interrupted)
    with pytest.raises(KeyboardInterrupt):
        adapter.predict(Y)
    assert same(adapter.state_dict(), before)


def test_reset_every_so_many_batches() -> None:
    every = fretta.adapt(build("resnet-like"), "tent", lr=1e-2, reset_every=2)
    plain = fretta.adapt(build("resnet-like"), "tent", lr=1e-2)
    every.reset()  # before the first batch: harmless
    assert not every.ready

    def pair(adapter: fretta.Adapter) -> list[Tensor]:
        return [adapter(X), adapter(Y)]

    first = pair(every)
    assert same(first, pair(plain))
    state = every.state_dict()
    assert same(first, pair(every))  # began again
    assert not same(first, pair(plain))
    every.load_state_dict(state)  # knows where in its period it was
    assert same(first, pair(every))


def test_a_module_among_modules() -> None:
    """In a container, whose train() and eval() do not switch adaptation."""
    adapter = fretta.adapt(build("resnet-like"), "tent", lr=1e-2)
    outer = nn.Sequential(adapter, nn.Softmax(1))
    plain = fretta.adapt(build("resnet-like"), "tent", lr=1e-2)
    for x, mode in ((X, True), (Y, False), (X, True)):
        outer.train(mode)
        assert adapter.training is mode
        assert torch.equal(outer(x), plain(x).softmax(1))
    with pytest.warns(FrettaWarning, match="save adapter.state_dict"):
        state = outer.state_dict()
    assert set(state) == {f"0.net.{name}" for name in build("resnet-like").state_dict()}
    outer.load_state_dict(state)


def test_an_adapter_is_no_model() -> None:
    with pytest.raises(ModelError, match="adapter already"):
        fretta.adapt(fretta.adapt(build("resnet-like"), "tent"), "auto")


def test_inplace_adapts_the_given_model_without_a_copy() -> None:
    model = build("resnet-like")
    weight = model.bn1.weight
    adapter = fretta.adapt(model, "tent", lr=1e-2, inplace=True)
    before = weight.detach().clone()
    adapter(X)
    assert adapter.model.net is model
    assert model.bn1.weight is weight
    assert not torch.equal(weight, before)
    adapter.reset()
    assert torch.equal(weight, before)


def test_user_hooks_gradients_and_modes_stay() -> None:
    model = build("resnet-like").train()
    model.fc.register_forward_hook(lambda *_: None)
    model(X).sum().backward()
    before = snapshot(model)
    adapter = fretta.adapt(model, "g-fret")
    adapter(X)
    after = snapshot(model)
    gradients = before.pop("grads"), after.pop("grads")
    assert same(before, after)
    assert gradients[0].keys() == gradients[1].keys()
    assert all(p.grad is not None and p.requires_grad for p in model.parameters())
    assert all(p.grad is None for p in adapter.model.net.parameters())


def test_a_method_instance_is_not_touched_and_can_be_shared() -> None:
    method = GFRET(lam=2.0, lr=1e-2)
    a, b = fretta.adapt(build("resnet-like"), method), fretta.adapt(build("resnet-like"), method)
    assert torch.equal(a(X), b(X))
    a(Y)
    assert vars(method) == vars(GFRET(lam=2.0, lr=1e-2))
    assert fretta.adapt(build("resnet-like"), method, lam=3.0).hyperparameters["lam"] == 3.0


# ---- variants ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        (GFRET(variant="released"), "lam", 100),
        (GFRET(variant="released", lam=1.0), "lam", 1),
        (GFRET(variant="released", lam=0.0), "lam", 0),
        (GFRET(variant="released"), "redundant_gradient", False),
        (GFRET(variant="released", redundant_gradient=True), "redundant_gradient", True),
        (GFRET(graph="unit"), "centers", "mean"),
        (EATA(variant="released", d_margin=0.4), "d_margin", 0.4),
        (EATA(variant="released", e_margin=0.0), "e_margin", 0.0),
        (EATA(variant="released"), "e_margin", (0.5 * math.log(1000) - 1) / math.log(10)),
        (SAR(variant="released"), "e_margin", 0.4 * 3),
        (SAR(), "reset_threshold", 0.2 / 3),
        (EATA(), "fisher_alpha", 1),
    ],
)
def test_what_variants_imply(method: fretta.Method, name: str, value: Any) -> None:
    """For ten classes; explicit values win."""
    used = method.resolved(10).hyperparameters()[name]
    assert used is value if isinstance(value, bool) else used == pytest.approx(value)


def test_thresholds_follow_the_number_of_classes() -> None:
    for classes, epsilon in ((10, 0.4), (100, 0.1), (1000, 0.05)):
        assert EATA().resolved(classes).d_margin == pytest.approx(epsilon)
    assert published_margin(2) <= 0.9
    assert 0.01 < published_margin(10_000) < 0.05
    assert EATA().resolved(1000).fisher_alpha == 2000
    assert SAR().resolved(1000).reset_threshold == pytest.approx(0.2)


def test_released_sar_keeps_its_average_after_a_reset() -> None:
    values: dict[str, Any] = {"lr": 1e-2, "e_margin": 0.99, "reset_threshold": 1.5}
    for variant, average in (("paper", False), ("released", True)):
        adapter = fretta.adapt(build("vit-like"), "sar", variant=variant, **values)
        adapter(X)
        assert (adapter.method.average is not None) is average
        assert same(adapter.model.adapted, adapter.model.origin)
        assert not adapter.method.opt.state  # momentum is gone too


def test_g_fret_steps_on_what_is_left_when_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paper: no term is left, nothing moves. Released: L_R still sees every sample."""

    def none_reliable(method: GFRET, p: Tensor, s: Tensor) -> Tensor:
        return torch.zeros(len(p), dtype=torch.bool)

    monkeypatch.setattr(GFRET, "reliable", none_reliable)
    monkeypatch.setattr(gfret_released, "_reliable", none_reliable)
    for values, moves in (
        ({"variant": "paper"}, False),
        ({"variant": "released"}, True),
        ({"variant": "released", "l_r_a": False, "l_r_r": False}, False),
    ):
        adapter = fretta.adapt(build("resnet-like"), "g-fret", lr=1e-2, **values)
        adapter(X)
        assert bool(adapter.method.opt.state) is moves
        assert same(adapter.model.adapted, adapter.model.origin) is not moves


# ---- state -------------------------------------------------------------------------------------


def test_only_adapted_tensors_are_remembered() -> None:
    adapter = fretta.adapt(build("timm-resnet18"), "g-fret")
    adapter(X)
    assert set(adapter.model.origin) == set(adapter.adapted)
    assert set(adapter.state_dict()["adapted"]) == set(adapter.adapted)
    share = sum(t.numel() for t in adapter.model.origin.values())
    assert share < 0.01 * sum(p.numel() for p in adapter.model.net.parameters())


def test_states_that_do_not_belong_here_change_nothing() -> None:
    a = fretta.adapt(build("resnet-like"), "g-fret", lr=1e-2)
    a(X)
    state = a.state_dict()
    a(Y)

    def broken(part: str, name: str, value: Any = None) -> dict[str, Any]:
        spoiled = copy.deepcopy(state)
        del spoiled["digest"]
        if value is None:
            del spoiled[part][name]
        else:
            spoiled[part][name] = value
        return spoiled

    elsewhere = fretta.adapt(build("vit-like"), "g-fret", lr=1e-2)
    elsewhere(X)
    heavier = build("resnet-like")
    heavier.conv1.weight.data[0, 0, 0, 0] += 1e-6  # a weight that is frozen
    for adapter, wrong, message in (
        (fretta.adapt(build("resnet-like"), "eta"), state, r"not a state of 'eta'.*'g-fret'"),
        (fretta.adapt(build("resnet-like"), "g-fret", lr=1.0), state, r"lr=0\.01 \(here 1\.0\)"),
        (fretta.adapt(build("vit-like"), "g-fret", lr=1e-2), state, "."),
        (elsewhere, state, "other weights"),
        (fretta.adapt(heavier, "g-fret", lr=1e-2), state, "other weights"),
        (a, {**state, "batches": 7}, "damaged"),
        (a, {}, "no state of an adapter"),
        (a, build("resnet-like").state_dict(), "weights of a model go into the model"),
        (a, broken("adapted", "bn1.weight", torch.zeros(3)), r"'bn1\.weight' has shape"),
        (a, broken("running", "opt"), "opt"),
        (a, broken("running", "bank"), "bank"),
    ):
        before = adapter.state_dict()
        with pytest.raises(StateError, match=message):
            adapter.load_state_dict(wrong)
        assert same(adapter.state_dict(), before)
        adapter(X)


def test_running_state_that_cannot_be_saved_is_refused() -> None:
    @dataclass
    class Hoarder(GradientMethod):
        key = "hoarder"

        def start(self, model: Any) -> None:
            self.things = {1, 2}

        def step(self, model: Any, x: Tensor) -> Tensor:
            return model(x)

    adapter = fretta.adapt(build("resnet-like"), Hoarder())
    adapter(X)
    with pytest.raises(StateError, match="keeps a set"):
        adapter.state_dict()


def test_random_numbers_come_from_the_seed_of_the_method() -> None:
    """Dropout of released TSD, noise of TEA: global randomness is left alone."""
    for key, values in (
        ("tsd", {"variant": "released"}),
        ("tea", {"sgld_steps": 1, "buffer_size": 8}),
    ):
        outs = []
        for seed in (0, 0, 1):
            adapter = fretta.adapt(
                build("nested-bn"), key, seed=seed, lr=1e-2, **{"predict": "after", **values}
            )
            torch.manual_seed(seed)
            expected = torch.rand(3)
            torch.manual_seed(seed)
            outs.append(adapter(X))
            assert torch.equal(torch.rand(3), expected)
        assert torch.equal(outs[0], outs[1])
        assert not torch.equal(outs[0], outs[2])


def test_wrapped_models_are_unwrapped() -> None:
    """Hooks must see the entire batch."""
    model = build("resnet-like").double()

    class OptimizedModule(nn.Module):  # what torch.compile returns, without compiling
        def __init__(self) -> None:
            super().__init__()
            self._orig_mod = model

    x = X.double()
    expected = fretta.adapt(model, "g-fret")(x)
    assert expected.dtype == torch.float64
    for wrapped in (OptimizedModule(), nn.DataParallel(model)):
        adapter = fretta.adapt(wrapped, "g-fret")
        assert torch.equal(adapter(x), expected)
        assert adapter.model.head_name == "fc"


# ---- things models do ----------------------------------------------------------------------------


def test_a_model_that_changes_its_input_in_place() -> None:
    class InPlace(Wrapped):
        def forward(self, x: Tensor) -> Tensor:
            return self.net(x.sub_(0.5).div_(0.25))

    model, contiguous = InPlace(nn.Identity()), fretta.Compute(layout="contiguous")
    for key in ("source", "g-fret", "sar", "tea"):
        values = {"sgld_steps": 1, "buffer_size": 8} if key == "tea" else {}
        adapter = fretta.adapt(model, key, steps=2, predict="before", compute=contiguous, **values)
        x = X.clone()
        out = adapter(x)
        assert torch.equal(x, X), "the caller's batch was changed"
        if key == "source":
            assert torch.equal(out, model(X.clone()))


def test_buffers_that_move_are_reset_and_saved() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, logits: Tensor) -> Tensor:
            self.seen += 1
            return logits + self.seen

    spectral = build("resnet-like")
    spectral.fc = nn.utils.parametrizations.spectral_norm(spectral.fc)  # moves in train mode
    for model, key, values in (
        (Wrapped(Counting()), "tent", {}),
        (spectral, "tsd", {"variant": "released", "lr": 1e-2}),
    ):
        a, b = (fretta.adapt(model, key, **values) for _ in range(2))
        first = [a(x) for x in (X, Y)]
        state = a.state_dict()
        third = a(X)
        a.reset()
        assert all(torch.equal(a(x), out) for x, out in zip((X, Y), first, strict=True))
        b.load_state_dict(state)
        assert torch.equal(b(X), third)


def test_shared_norm_parameters_learn_once() -> None:
    model = build("resnet-like")
    model.layer1[0].bn2.weight = model.layer1[0].bn1.weight
    adapter = fretta.adapt(model, "tent")
    adapter(X)
    assert "layer1.0.bn1.weight" in adapter.adapted
    assert "layer1.0.bn2.weight" not in adapter.adapted


@pytest.mark.filterwarnings("ignore")  # torch.ao is deprecated
def test_quantized_and_lazy_layers_are_refused() -> None:
    model = build("resnet-like")
    quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    assert fretta.adapt(quantized, "bn")(X).shape == (6, 5)
    for key in ("tent", "sar", "tea", "tipi"):
        with pytest.raises(ModelError, match="not quantized"):
            fretta.adapt(quantized, key)(X)
    model.fc = nn.LazyLinear(5)
    with pytest.raises(ModelError, match="lazy layers"):
        fretta.adapt(model, "tent")


@pytest.mark.parametrize("key", ["lame", "t3a", "bn"])
def test_half_precision_without_gradients(key: str) -> None:
    half, full = build("resnet-like").half(), build("resnet-like")
    got, wanted = fretta.adapt(half, key)(X.half()), fretta.adapt(full, key)(X)
    assert got.dtype == torch.float16
    torch.testing.assert_close(got.softmax(1).float(), wanted.softmax(1), atol=0.05, rtol=0)


@quiet
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("bn", {"alpha": 0.5}),
        ("bn", {"prior_strength": 16.0}),
        ("bn", {"prior_strength": 16.0, "parts": "mean"}),
        ("bn", {"prior_strength": 16.0, "parts": "variance"}),
        ("bn", {"memory": "moving"}),
        ("bn", {"memory": "cumulative"}),
        ("source", {"statistics": 0.5}),
        ("source", {"statistics": "moving"}),
        ("source", {"statistics": "adaptive"}),
        ("delta", {}),
        ("memo", {"views": 2}),
        ("rotta", {"memory": 4, "update_every": 4}),
        ("g-fret", {"variant": "released"}),
    ],
)
def test_models_of_another_precision(dtype: torch.dtype, key: str, values: dict[str, Any]) -> None:
    """Logits and the statistics of layers are in the model's; averages in float32 at least."""
    adapter = fretta.adapt(build("resnet-like").to(dtype), key, **values)
    for x in batches(6, 20, 1):
        for out in (adapter(x.to(dtype)), adapter.predict(x.to(dtype))):
            assert out.dtype is dtype
            assert torch.isfinite(out).all()
    kinds = {b.dtype for b in adapter.model.net.buffers() if b.is_floating_point()}
    assert kinds == {dtype}
    averages = vars(adapter.method).get("average") or vars(adapter.method).get("moving") or {}
    wide = torch.promote_types(dtype, torch.float32)
    assert all(t.dtype is wide for pair in averages.values() for t in pair)


def test_learning_in_bfloat16_is_warned_of() -> None:
    """A step of 1e-3 from a scale of 1, which has steps of 2^-8 below it, is none."""
    model, x = build("resnet-like").bfloat16(), X.bfloat16()
    with pytest.warns(FrettaWarning, match=r"bfloat16, which keeps 8 bits.*precision='bfloat16'"):
        fretta.adapt(model, "tent")(x)
    fretta.adapt(model, "bn")(x)  # learns nothing: a warning would be an error


def test_an_adapter_in_a_file_goes_on(tmp_path: Any) -> None:
    a = fretta.adapt(build("resnet-like"), "tent", guard="rollback")
    a(X)
    torch.save(a, tmp_path / "adapter.pt")
    b = torch.load(tmp_path / "adapter.pt", weights_only=False)
    assert torch.equal(a(Y), b(Y))


class Interrupting(nn.Module):
    """Ctrl-C in the forward of this number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.calls = number, 0

    def forward(self, logits: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == self.number:
            raise KeyboardInterrupt
        return logits


@pytest.mark.parametrize("guard", [None, "warn", "rollback"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_an_interrupted_step_leaves_no_trace(guard: str | None, number: int) -> None:
    """In the first batch and later, before the first update and between two."""
    stop = Interrupting(number)
    adapter = fretta.adapt(Wrapped(stop), "tent", steps=2, guard=guard, inplace=True)
    twin = fretta.adapt(Wrapped(nn.Identity()), "tent", steps=2, guard=guard, inplace=True)
    before = adapter.state_dict()
    try:
        for x in (X, Y):
            before = adapter.state_dict()
            adapter(x)
            twin(x)
    except KeyboardInterrupt:
        assert same(adapter.state_dict(), before)
    assert torch.equal(adapter(Y), twin(Y))


def test_threads_take_turns() -> None:
    a, b = (fretta.adapt(build("resnet-like"), "tent", lr=1e-2) for _ in range(2))
    results: list[Tensor] = []
    threads = [
        threading.Thread(target=lambda: results.extend(a(X) for _ in range(4))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [b(X) for _ in range(8)]
    assert sorted(map(str, results)) == sorted(map(str, expected))
    assert same(a.state_dict(), b.state_dict())


def test_norm_layers_that_are_not_used() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.fc = nn.BatchNorm2d(3), nn.Linear(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x.mean((2, 3)))

    with pytest.raises(ModelError, match="do not reach the output"):
        fretta.adapt(Unused(), "tent")(X)


class Overflowing(Wrapped):
    """NaN for images with a pixel over 88.7."""

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) + 0 * x.flatten(1).abs().amax(1, keepdim=True).exp()


@pytest.mark.parametrize("key", ["source", "bn", "tent", "g-fret", "auto", "tsd", "cmf"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
def test_an_overflow_costs_one_batch_not_the_adapter(key: str, first: bool) -> None:
    """No NaN is returned as a prediction, and none stays in a moving average."""
    adapter, twin = (fretta.adapt(Overflowing(None), key, head="net.fc") for _ in range(2))
    if not first:
        adapter(X), twin(X)
    huge = X.clone()
    huge[2] *= 1e5
    for call in (adapter, adapter.predict, adapter.source_logits, adapter.features):
        with pytest.raises(InputError, match=r"for 1 of 6 images.*position \[2\].*reach .*e\+05"):
            call(huge)
        assert same(adapter.state_dict(), twin.state_dict())
    assert torch.equal(adapter(Y), twin(Y))


def test_numpy_values_are_saved_as_plain_ones(tmp_path: Any) -> None:
    """And come back from JSON as nested lists."""
    a = fretta.adapt(build("resnet-like"), "g-fret", mask=np.eye(16), lr=np.float64(1e-2))
    a(X)
    torch.save(a.state_dict(), tmp_path / "s.pt")
    expected = a(Y)
    for mask, lr in ((np.eye(16), np.float64(1e-2)), (torch.eye(16).tolist(), 1e-2)):
        b = fretta.adapt(build("resnet-like"), "g-fret", mask=mask, lr=lr)
        b.load_state_dict(torch.load(tmp_path / "s.pt", weights_only=True))
        assert torch.equal(b(Y), expected)
