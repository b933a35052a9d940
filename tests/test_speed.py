"""Speed without a clock: what a step does is counted, so these hold on any machine."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fretta
from fretta.errors import ConfigError, FrettaWarning
from fretta.experiment.bench import bench, count, floor_step, peak_bytes
from fretta.models import load
from fretta.parts import compute, optim
from fretta.state import copy_value, take_snapshot
from nets import TIGHT, batches, build, grid, with_rounding_noise

CPU = torch.device("cpu")
# One wait to refuse bad pixels, one to learn whether the update was finite. Filters ask once more
# on a CPU, where asking is free; the bank and the sign of features cost the rest. At the end of
# every step one more, so that no NaN is returned.
WAITS = {
    "source": 1,
    "bn": 1,
    "tent": 2,
    "s-fret": 3,
    "tipi": 2,
    "tea": 2,
    "eta": 4,
    "eata": 4,
    "auto": 8,
}
WAITS |= {"lame": 101}  # which asks after each iteration whether to stop
WAITS |= {"memo": 40}  # AugMix asks of each operation which images go through it

EVERYTHING = ("tsd", "shot-im", "cotta", "memo")  # which let every weight learn


def images(seed: int = 0, n: int = 16) -> Tensor:
    return torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def confident_net() -> nn.Module:
    """Random weights would be filtered out by their entropy: sharpen the head."""
    torch.manual_seed(0)
    net = load("cifar:resnet20", num_classes=10)
    with torch.no_grad():
        [m for m in net.modules() if isinstance(m, nn.Linear)][-1].weight.mul_(100)
    return net


def ready(key: str, net: nn.Module | None = None, **settings: Any) -> fretta.Adapter:
    if key == "tea":
        settings.setdefault("sgld_steps", 2)
    if key in ("eta", "eata", "sar", "rdumb", "deyo", "auto"):
        settings.setdefault("e_margin", 0.99)
    if key == "deyo":
        settings.setdefault("plpd_margin", -0.9)
    if key in ("rotta", "note"):
        settings |= {"memory": 16, "update_every": 16}  # an update with every batch
    net = net or confident_net()
    dtype = next(net.parameters()).dtype
    source = [images(9).to(dtype)] if key in ("eata", "foa-shift") else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FrettaWarning)
        a = fretta.adapt(net, key, source=source, **settings)
        a(images().to(dtype))
    return a


@pytest.mark.parametrize(
    "key", grid(sorted(fretta.methods.REGISTRY), lambda key: key not in ("memo", "tea"))
)
def test_passes_are_those_declared_and_no_weight_gradient_is_computed(key: str) -> None:
    a = ready(key, sgld_steps=20) if key == "tea" else ready(key)
    if key == "auto":
        vars(a.method)["gate"].weight = 0.9  # it learns while it is believed
    n = 1 if key == "memo" else 16  # its passes are those of one image
    seen = count(a.model.net, lambda: a(images(1, n)))
    passes = f"{seen.forwards}F" + (f"+{seen.backwards}B" if seen.backwards else "")
    assert passes == fretta.methods.REGISTRY[key].passes
    convolutions = sum(isinstance(m, nn.Conv2d) for m in a.model.net.modules())
    assert seen.weight_gradients == (convolutions if key in EVERYTHING else 0)
    assert seen.waits <= WAITS.get(key, 7) + 1


def test_cotta_computes_no_view_it_throws_away() -> None:
    sure, unsure = (ready("cotta", p_th=p_th, views=5) for p_th in (0.0, 1.1))
    for a, forwards in ((sure, 1 + 1 + 1), (unsure, 1 + 5 + 1)):  # source, teacher, student
        seen = count(a.model.net, lambda a=a: a(images(1)))
        assert (seen.forwards, seen.backwards) == (forwards, 1)


@pytest.mark.parametrize(
    "key",
    grid(["tent", "s-fret", "g-fret", "eta", "tsd", "rotta", "note"], {"g-fret"}.__contains__),
)
def test_a_late_step_does_what_an_early_one_does(key: str) -> None:
    """Cost does not grow with the stream: the same operators, the same memory."""
    a = ready(key)
    size = 16 if key in ("rotta", "note") else 4  # an update with every batch
    for n in range(1, 6):
        a(images(n, size))
    early = count(a.model.net, lambda: a(images(6, size)))
    for n in range(7, 60):
        a(images(n, size))
    late = count(a.model.net, lambda: a(images(60, size)))
    assert sum(late.operators.values()) <= 1.02 * sum(early.operators.values()) + 5


def test_fewer_operators_than_the_floor() -> None:
    """The optimizer is one kernel, not a loop over the tensors: a step of Tent does less than one
    written by hand, but for the copy of what it changes, in case the batch fails."""
    net = confident_net()
    a, by_hand = ready("tent", net), floor_step(net)
    by_hand(images())
    ours = count(a.model.net, lambda: a(images(1)))
    theirs = count(net, lambda: by_hand(images(1)))
    copy = count(a.model.net, lambda: take_snapshot(a.model, a.method, copy_value))
    work = sum(ours.operators.values()) - sum(copy.operators.values())
    assert work < 0.6 * sum(theirs.operators.values())
    assert ours.operators["convolution_backward"] == theirs.operators["convolution_backward"]


def test_g_fret_needs_the_memory_of_tent() -> None:
    tent, g_fret = ready("tent"), ready("g-fret")
    first = peak_bytes(lambda: tent(images(1, 64)), CPU)
    second = peak_bytes(lambda: g_fret(images(1, 64)), CPU)
    assert second < 1.05 * first


@pytest.mark.parametrize("guard", [None, "rollback"])
@pytest.mark.parametrize("size", [16, 64])
def test_auto_holds_one_graph_at_a_time(size: int, guard: str | None) -> None:
    """Its first batch is predicted twice, since the statistics move far."""
    tent, auto = ready("tent"), fretta.adapt(confident_net(), "auto", guard=guard)
    first = peak_bytes(lambda: tent(images(1, size)), CPU)
    second = peak_bytes(lambda: auto(images(1, size) + 3), CPU)
    assert second < 1.5 * first


def test_the_graph_is_kept_only_where_something_learns() -> None:
    """Activations of a frozen beginning are not kept: less memory with the last norms only."""
    everything, last = ready("tent"), ready("tent", compute=fretta.Compute(last_norms=2))
    assert len(last.adapted) == 4
    full = peak_bytes(lambda: everything(images(1, 64)), CPU)
    part = peak_bytes(lambda: last(images(1, 64)), CPU)
    assert part < 0.5 * full
    forward = count(last.model.net, lambda: last(images(1)))
    assert forward.operators["convolution_backward"] <= 2


# ---- layout --------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["source", "bn"])
def test_the_layout_changes_rounding_only(key: str) -> None:
    """What learns amplifies it: tests/test_conformance.py compares those in float64."""

    def run(layout: str, net: nn.Module, stream: list[Tensor]) -> Tensor:
        a = ready(key, net, compute=fretta.Compute(layout=layout))
        return torch.stack([a(x) for x in stream])

    net, stream = confident_net(), [images(1), images(2)]
    plain, noise = with_rounding_noise(partial(run, "contiguous"), net, stream)
    assert (run("channels_last", net, stream) - plain).abs().max() <= 10 * noise


def test_which_layout_is_chosen() -> None:
    def chosen(net: nn.Module, wanted: str = "auto", free: bool = True) -> Any:
        return compute.choose_layout(net, wanted, free)

    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    grouped = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4))
    assert chosen(plain) == "channels_last"
    assert chosen(plain, free=False) is None
    assert chosen(grouped) is None
    assert chosen(nn.Linear(3, 4)) is None
    assert chosen(plain, "contiguous") is None
    assert chosen(grouped, "channels_last") == "channels_last"
    net = confident_net()
    fretta.adapt(net, "tent")(images())
    assert all(p.is_contiguous() for p in net.parameters())  # the user's model keeps its own


# ---- precision -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [{"last_norms": 0}, {"last_norms": True}, {"layout": "nhwc"}, {"precision": "fp8"}]
)
def test_settings_that_cannot_work(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        fretta.Compute(**wrong)


def test_precision_is_refused_where_it_would_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "_survives_bfloat16", lambda: False)
    with pytest.raises(ConfigError, match="ONEDNN_MAX_CPU_ISA"):
        fretta.adapt(confident_net(), "tent", compute=fretta.Compute(precision="bfloat16"))


BFLOAT16 = """
import torch, fretta
from fretta.models import load
from nets import batches, with_rounding_noise

torch.manual_seed(0)
net, stream = load("cifar:resnet20", num_classes=10), batches(16, 16)
for key in ("bn", "tent", "g-fret"):
    def run(net, stream, precision=None):
        a = fretta.adapt(net, key, compute=fretta.Compute(precision=precision))
        return torch.stack([a(x) for x in stream])

    exact, noise = with_rounding_noise(run, net, stream, torch.bfloat16)
    coarse = run(net, stream, "bfloat16")
    assert coarse.dtype is torch.float32
    assert not torch.equal(exact, coarse)
    assert (exact - coarse).abs().max() <= 10 * noise, key
"""


@pytest.mark.slow
def test_bfloat16_stays_near() -> None:
    # without the matrix instructions that some virtual machines announce and cannot run
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    command = [sys.executable, "-c", BFLOAT16]
    out = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr


# ---- compiled blocks -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.parametrize("key", ["tent", "g-fret"])
def test_compiled_blocks_give_the_same_numbers(key: str) -> None:
    net = build("resnet-like").double()
    plain = fretta.adapt(net, key)
    compiled = fretta.adapt(net, key, compute=fretta.Compute(compile="aot_eager"))
    for x in batches(6, 6, 6, size=16):
        torch.testing.assert_close(plain(x.double()), compiled(x.double()), atol=TIGHT, rtol=TIGHT)
    assert compiled.adapted == plain.adapted
    assert compiled.health is not None
    assert not any(hasattr(m, "_orig_mod") for m in net.modules())


# ---- decisions on the device ---------------------------------------------------------------------


@pytest.fixture
def asynchronous(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decide as on an accelerator: without asking the host before the update."""
    monkeypatch.setattr(optim, "_asynchronous", lambda tensor: True)


@pytest.mark.parametrize(
    "key", grid(["tent", "eta", "eata", "g-fret", "tsd"], {"eta", "g-fret"}.__contains__)
)
def test_deciding_on_the_device_gives_the_same_numbers(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> Tensor:
        a = ready(key, **({"e_margin": 0.3} if key in ("eta", "eata") else {}))
        return torch.stack([a(images(n)) for n in range(1, 5)])

    expected = run()
    monkeypatch.setattr(optim, "_asynchronous", lambda tensor: True)
    assert torch.equal(run(), expected)


def nobody(self: Any, logits: Tensor, *_: Any) -> Tensor:
    return torch.zeros(len(logits), dtype=torch.bool)


@pytest.mark.usefixtures("asynchronous")
@pytest.mark.parametrize("key", ["eta", "eata", "g-fret"])
def test_nothing_kept_moves_nothing_on_a_device(key: str) -> None:
    a = ready(key)
    before = {name: p.detach().clone() for name, p in a.model.adapted.items()}
    moments = [v["exp_avg"].clone() for v in a.method.opt.state.values()]
    assert moments
    with pytest.MonkeyPatch.context() as patch:
        name = "reliable" if key == "g-fret" else "_select"
        patch.setattr(type(a.method), name, nobody)
        a(images(3))
    assert all(torch.equal(p, before[name]) for name, p in a.model.adapted.items())
    later = [v["exp_avg"] for v in a.method.opt.state.values()]
    assert all(torch.equal(x, y) for x, y in zip(moments, later, strict=True))


@pytest.mark.usefixtures("asynchronous")
def test_an_overflow_moves_nothing_on_a_device() -> None:
    parameter = nn.Parameter(torch.ones(3))
    optimizer = optim.build_optimizer("adam", [parameter], 0.1, 0.9)
    optim.descend(optimizer, parameter.sum())
    moved = parameter.detach().clone()
    with pytest.warns(FrettaWarning, match="not finite"):
        optim.descend(optimizer, (parameter * torch.inf).sum())
    assert torch.equal(parameter, moved)
    optim.descend(optimizer, parameter.sum())
    assert not torch.equal(parameter, moved)


# ---- the bench itself ----------------------------------------------------------------------------


def test_bench_times_everybody() -> None:
    net = build("resnet-like")
    x = torch.randn(8, 3, 16, 16)
    timings = {t.name: t for t in bench(net, x, ["source", "tent", "tsd"], rounds=3)}
    assert list(timings) == ["forward", "floor", "floor (all parameters)", "source", "tent", "tsd"]
    assert timings["floor"].ratio == 1
    assert timings["tsd"].own_ratio is not None
    assert timings["tent"].own_ratio == pytest.approx(timings["tent"].ratio)  # 1F+1B, the floor
    assert timings["forward"].own_ratio is None
    assert (timings["tent"].forwards, timings["tent"].backwards) == (1, 1)
    assert all(t.milliseconds > 0 and t.peak_mib > 0 for t in timings.values())
    with pytest.raises(ConfigError, match="rounds"):
        bench(net, x, ["tent"], rounds=0)
