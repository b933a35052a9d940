"""Statistics of batch norms: the estimates by hand, and what streams they survive."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fretta
from fretta.data import Preprocessing, make_stream, open_dataset
from fretta.errors import ConfigError
from fretta.methods import Auto
from fretta.models import load_source
from fretta.parts.adaptive import AdaptiveStatistics, Assignment
from fretta.parts.gate import Gate
from fretta.parts.statistics import MovingStatistics, image_moments
from nets import TIGHT, batches, build

pytestmark = pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")


class Net(nn.Module):
    """Channel means are the features; the head reads two classes from them."""

    def __init__(self, dimensions: int = 2) -> None:
        super().__init__()
        kind = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
        self.norm = kind[dimensions](2, affine=False)
        self.head = nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            self.head.weight.copy_(8 * torch.eye(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return self.head(x.flatten(2).mean(2) if x.dim() > 2 else x)


def images(n: int, mean: float = 0.0, std: float = 1.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return mean + std * torch.randn(n, 2, 8, 8, generator=generator)


def adaptive(net: Net) -> AdaptiveStatistics:
    return AdaptiveStatistics({"norm": net.norm}, classes=2)


def test_moments_are_per_image_and_channel() -> None:
    x = images(3).double()
    for part in (x, x[..., 0], x[..., None], x[:, :, 0, 0]):
        mean, square = image_moments(part, 3)
        flat = part.reshape(3, 2, -1)
        assert torch.allclose(mean, flat.mean(2))
        assert torch.allclose(square, flat.square().mean(2))
    tokens = x.flatten(2).transpose(1, 2).flatten(0, 1)  # a row for each place of each image
    for got, wanted in zip(image_moments(tokens, 3), image_moments(x, 3), strict=True):
        assert torch.allclose(got, wanted)
    assert image_moments(tokens[1:], 3) is None


@pytest.mark.parametrize("dimensions", [0, 1, 2, 3])
def test_every_kind_of_batch_norm(dimensions: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = 3 + 3 * torch.randn(64, 2, *[4] * dimensions, generator=generator)
    adapter = fretta.adapt(Net(dimensions), "source", statistics="adaptive")
    for _ in range(4):
        adapter(x)
    norm = adapter.model.net.norm
    assert isinstance(norm, nn.Module)
    assert torch.allclose(norm.running_mean, x.transpose(0, 1).flatten(1).mean(1), atol=0.6)


def test_moving_statistics_by_hand() -> None:
    net = Net().eval()
    statistics = MovingStatistics({"norm": net.norm})
    x = images(32, mean=2.0)
    statistics.settle(net, x)
    rate = 1 - math.exp(-32 / 128)
    mean = rate * x.mean((0, 2, 3))
    square = (1 - rate) * 1 + rate * x.square().mean((0, 2, 3))
    assert torch.allclose(net.norm.running_mean, mean, atol=1e-6)
    assert torch.allclose(net.norm.running_var, square - mean.square(), atol=1e-6)


def test_classes_of_a_batch_by_hand() -> None:
    a = Assignment(torch.tensor([[9.0, -9.0], [9.0, -9.0], [-9.0, 9.0]]))
    assert torch.allclose(a.count, torch.tensor([2.0, 1.0]), atol=1e-6)
    assert a.hard.tolist() == [2, 1]
    assert torch.allclose(
        a.mean @ torch.tensor([[1.0], [3.0], [7.0]]), torch.tensor([[2.0], [7.0]])
    )


def test_balanced_estimate_by_hand() -> None:
    """Three images of one class and one of the other, offsets unknown: least squares by hand."""
    statistics = adaptive(Net())
    statistics.images, statistics.unevenness = 100, 1.0
    label = torch.tensor([0, 0, 0, 0, 0, 1])
    statistics.assignment = Assignment(200.0 * torch.nn.functional.one_hot(label, 2))
    statistics.assignment.classes = 2
    rows = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0], [10.0]]).expand(6, 2)
    old = {**statistics.memory, "within": torch.full((1, 2), 3.0)}
    found, noise, within, between = statistics._estimate(statistics.all, rows, old, 0)
    unit = 1 + 1e-5
    spread = (4 + 1 + 0 + 1 + 4) / (6 - 2) / unit  # about the class means 2 and 10
    expected_within = 3 + 6 / 64 * (spread - 3)
    assert float(within[0]) == pytest.approx(expected_within, rel=1e-5)
    assert float(between[0]) == pytest.approx(0.3)  # two classes tell nothing about it
    offset = 0.3 * expected_within
    precision = [1 / (offset + expected_within / n) for n in (5, 1)]
    mean = (2 * precision[0] + 10 * precision[1]) / sum(precision)
    assert float(found[0]) == pytest.approx(mean, rel=1e-4)
    assert float(noise[0]) == pytest.approx(1 / sum(precision), rel=1e-4)


@pytest.mark.parametrize(("which", "name"), [(0, "mean"), (1, "var")])
def test_one_image_differs_from_what_is_remembered(which: int, name: str) -> None:
    """About itself it has no spread, and nothing would be noise any more."""
    net = Net().eval()
    statistics = AdaptiveStatistics({"norm": net.norm}, classes=101)  # too many to balance
    statistics.images = 100
    memory = {**statistics.memory, "within": torch.full((1, 2), 3.0), name: torch.full((2,), 5.0)}
    one = torch.tensor([[7.0, 1.0]])
    found, noise, within, _ = statistics._estimate(statistics.all, one, memory, which)
    spread = (4 + 16) / 2 / (1 + 1e-5) ** (1 + which)
    assert torch.equal(found, one[0])
    assert float(within[0]) == pytest.approx(3 + 1 / 64 * (spread - 3), rel=1e-5)
    assert torch.equal(noise, within)
    statistics.images = 0
    first = statistics._estimate(statistics.all, torch.full((1, 2), 5.0), memory, which)
    assert float(first[2]) > 0  # just as remembered: no spread, but not without noise for good


def test_single_images_of_many_classes_keep_their_noise() -> None:
    net = Net().eval()
    statistics = AdaptiveStatistics({"norm": net.norm}, classes=101)
    for image in images(64).split(1):
        statistics.settle(net, image)
        assert float(statistics.memory["within"].min()) > 1e-6  # in units of the source's variance
    assert float(net.norm.running_mean.abs().max()) < 0.05  # the source's: clean images


class Tokens(nn.Module):
    """Patches as rows (N · T, c), as LeViT has them; those of an image one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(2), nn.Linear(2, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(2).transpose(1, 2)
        rows = self.norm(rows.flatten(0, 1)).view_as(rows)
        return self.head(rows.mean(1))


@pytest.mark.parametrize("statistics", ["moving", "adaptive"])
@pytest.mark.parametrize("size", [1, 8, 32])
def test_rows_of_tokens_are_pixels_of_their_images(statistics: str, size: int) -> None:
    """The same network on (N, c, H, W) images has the same statistics."""
    tokens, plain = Tokens().double().eval(), Net().double().eval()
    plain.head.load_state_dict(tokens.head.state_dict())
    a, b = (fretta.adapt(net, "source", statistics=statistics) for net in (tokens, plain))
    for seed in range(3):
        x = images(size, mean=2.0, std=2.0, seed=seed).double()
        torch.testing.assert_close(a(x), b(x), atol=TIGHT, rtol=0)
    ours, theirs = (adapter.model.net.get_submodule("norm") for adapter in (a, b))
    torch.testing.assert_close(ours.running_mean, theirs.running_mean, atol=TIGHT, rtol=0)
    torch.testing.assert_close(ours.running_var, theirs.running_var, atol=TIGHT, rtol=0)
    assert float(ours.running_mean.min()) > 0  # followed the stream


def test_clean_images_leave_the_source_and_shifted_ones_move_it() -> None:
    clean, shifted = Net().eval(), Net().eval()
    of_clean, of_shifted = adaptive(clean), adaptive(shifted)
    for seed in range(6):
        of_clean.settle(clean, images(32, seed=seed))
        of_shifted.settle(shifted, images(32, mean=1.0, std=2.0, seed=seed))
    assert float(clean.norm.running_mean.abs().max()) < 0.05
    assert torch.allclose(shifted.norm.running_mean, torch.ones(2), atol=0.1)
    assert torch.allclose(shifted.norm.running_var, torch.full((2,), 4.0), atol=0.5)


def test_a_change_of_domain_drops_the_memory() -> None:
    net = Net().eval()
    statistics = adaptive(net)
    for seed in range(10):
        statistics.settle(net, images(32, mean=1.0, seed=seed))
    assert statistics.jump < 0.5
    statistics.settle(net, images(32, mean=-2.0, std=2.0, seed=99))
    assert statistics.jump > 0.8
    assert torch.allclose(net.norm.running_mean, torch.full((2,), -2.0), atol=0.3)


@pytest.mark.parametrize("statistics", ["moving", "adaptive"])
@pytest.mark.parametrize("method", ["source", "tent", "g-fret"])
def test_statistics_are_state(method: str, statistics: str) -> None:
    """Of any method: reset, save and go on, undo, the source, a plain module."""
    stream = batches(6, 6, 20, 20)
    more = {} if method == "source" else {"lr": 1e-2}
    adapter = fretta.adapt(build("resnet-like"), method, statistics=statistics, **more)
    twin = fretta.adapt(build("resnet-like"), method, statistics=statistics, **more)
    first = [adapter(x) for x in stream]
    state = adapter.state_dict()
    after = adapter(stream[0])
    assert torch.equal(twin.source_logits(stream[0]), adapter.source_logits(stream[0]))
    twin.load_state_dict(state)
    assert torch.equal(twin(stream[0]), after)
    with torch.no_grad():
        assert torch.equal(twin.export()(stream[1]), twin.predict(stream[1]))
    adapter.reset()
    assert all(torch.equal(adapter(x), y) for x, y in zip(stream, first, strict=True))


def test_a_forward_that_fails_leaves_statistics_as_they_were() -> None:
    adapter = fretta.adapt(build("resnet-like"), "stein")
    adapter(batches(20)[0])
    before = adapter.predict(batches(8, seed=1)[0])
    with pytest.raises(fretta.errors.InputError):
        adapter(torch.randn(4, 7, 8, 8))
    assert torch.equal(adapter.predict(batches(8, seed=1)[0]), before)


def test_a_share_of_the_batch_is_bn_with_alpha() -> None:
    mixed = fretta.adapt(build("resnet-like"), "source", statistics=0.25)
    bn = fretta.adapt(build("resnet-like"), "bn", alpha=0.25)
    for x in batches(6, 1, 6):
        assert torch.equal(mixed(x), bn(x))


@pytest.mark.parametrize("value", ["test", 1.5, -0.1, True])
def test_unknown_statistics_are_named(value: object) -> None:
    with pytest.raises(ConfigError, match="source, batch, moving, adaptive"):
        fretta.adapt(build("resnet-like"), "tent", statistics=value)


def test_gate_by_hand() -> None:
    sure, unsure = torch.tensor([[9.0, 0.0], [0.0, 9.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    opened, closed, lost = Gate(), Gate(), Gate()
    for _ in range(200):
        opened.add(sure, unsure)
        closed.add(unsure, sure)
        lost.add(unsure, torch.tensor([[9.0, 0.0], [9.0, 0.0]]))  # sure, and of one class
    assert opened.open
    assert closed.closed
    assert lost.open
    half = Gate()
    mean = (sure.softmax(1) + unsure.softmax(1)) / 2
    assert torch.allclose(half.blend(sure, unsure).exp(), mean, atol=1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_rows_that_are_not_finite_do_not_enter_the_average(value: float) -> None:
    sure, unsure = torch.tensor([[9.0, 0.0], [0.0, 9.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    bad = torch.full((1, 2), value)
    for adapted, source in ((bad, sure[:1]), (sure[:1], bad)):
        gate, twin = Gate(), Gate()
        for _ in range(3):
            gate.add(torch.cat([sure, adapted]), torch.cat([unsure, source]))
            twin.add(sure, unsure)
        assert gate.row is not None
        assert twin.row is not None
        assert torch.equal(gate.row, twin.row)
        assert (gate.images, gate.weight) == (twin.images, twin.weight)
        gate.add(adapted, source)  # no other row: the source model predicts
        assert gate.closed
        assert torch.equal(gate.row, twin.row)
        assert gate.images == twin.images
        gate.add(sure, unsure), twin.add(sure, unsure)
        assert gate.weight == twin.weight  # and is judged anew
        stands = Gate(mixes=False)
        stands.add(adapted, source)
        assert stands.weight == 1
        assert stands.row is None


def test_a_class_that_cannot_be_enters_the_average() -> None:
    """Its logit is -inf: a prediction over two of three classes, the entropy of which is ln 2."""
    gate = Gate()
    gate.add(torch.tensor([[0.0, 0.0, -math.inf]]), torch.tensor([[0.0, 0.0, 0.0]]))
    assert gate.row is not None
    expected = [math.log(2), math.log(3), 0.5, 0.5, 0, 1 / 3, 1 / 3, 1 / 3]
    assert gate.row.tolist() == pytest.approx(expected)


def test_a_layer_learns_in_units_of_its_scale() -> None:
    """Scale and shift four times as large, the weights behind them a quarter: the same function,
    which learns the same. Adam alone would move it four times as far."""
    plain, scaled = build("resnet-like").double(), build("resnet-like").double()
    with torch.no_grad():
        for layer in (scaled.layer1, scaled.layer2, scaled.layer3, scaled.layer4):
            block = layer[0]  # type: ignore[index]
            for tensor, factor in (
                (block.bn1.weight, 4),
                (block.bn1.bias, 4),
                (block.conv2.weight, 0.25),
            ):
                tensor.mul_(factor)
    a, b = (fretta.adapt(net, "auto", e_margin=2.0, hedge=False) for net in (plain, scaled))
    still = fretta.adapt(plain, "stein", hedge=False)
    for x in batches(20, 20, 20, 20):
        x = x.double()
        ours, theirs, unlearned = a(x), b(x), still(x)
    assert torch.allclose(ours, theirs, atol=TIGHT)
    assert not torch.allclose(ours, unlearned, atol=100 * TIGHT)


def test_frequent_classes_count_less() -> None:
    """By hand: three images of class 0 and one of class 1, all predicted with certainty."""
    method = Auto()
    method.seen = None
    logits = 50 * torch.eye(2, dtype=torch.float64)[[0, 0, 0, 1]]
    certain = torch.ones(4, dtype=torch.bool)
    weight = method.rarity(logits, certain, balance=0.5)
    assert float(weight.mean()) == pytest.approx(1)
    assert float(weight[3] / weight[0]) == pytest.approx(math.sqrt((3 + 1) / (1 + 1)))
    only = method.rarity(logits, torch.tensor([False, False, False, True]), balance=0.5)
    assert float(only[3]) == pytest.approx(1)  # of mean 1 over those that are learned from
    kept = 1 + math.exp(-4 / 256)
    assert method.seen.tolist() == pytest.approx([3 * kept, kept])
    assert torch.isfinite(method.rarity(logits, ~certain, balance=0.5)).all()
    assert method.rarity(logits, certain, balance=0).tolist() == pytest.approx([1] * 4)


@pytest.mark.parametrize(("norm", "half"), [(nn.BatchNorm1d, False), (nn.LayerNorm, True)])
def test_without_batch_norms_balance_counts_half(
    norm: type[nn.Module], half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list[float]()
    plain = Auto.rarity

    def rarity(self: Auto, logits: Tensor, certain: Tensor, balance: float) -> Tensor:
        found.append(balance)
        return plain(self, logits, certain, balance)

    monkeypatch.setattr(Auto, "rarity", rarity)
    adapter = fretta.adapt(nn.Sequential(norm(4), nn.Linear(4, 4)), "auto", balance=0.8)
    adapter(torch.randn(8, 4))
    assert found == [0.4 if half else 0.8]


@pytest.mark.slow
def test_learning_that_loses_classes_begins_again() -> None:
    """At a rate that is far too high predictions end in one class; a quarter of it does better."""
    auto, careless = on_digits("auto", lr=0.3), on_digits("auto", lr=0.3, hedge=False)
    stein, found, lost = (
        accuracy(a, "continual", 64) for a in (on_digits("stein"), auto, careless)
    )
    assert stein > found > lost + 0.3
    assert isinstance(auto.method, Auto)
    assert auto.method.lr_factor < 1
    even, one = torch.eye(4) * 9, torch.eye(4)[[0, 0, 0, 0]] * 9
    gate = Gate()
    gate.add(one, even)
    assert gate.lost == pytest.approx(1, abs=0.01)
    assert not gate.collapsed  # four images
    gate.add(one.repeat(20, 1), even.repeat(20, 1))
    assert gate.collapsed
    gate.add(even.repeat(80, 1), one.repeat(80, 1))
    assert not gate.collapsed


def on_digits(method: str, **options: Any) -> fretta.Adapter:
    return fretta.adapt(load_source("digits")[0], method, **options)


def accuracy(adapter: fretta.Adapter, order: str, size: int, share: float | None = None) -> float:
    preprocessing = Preprocessing.from_json(load_source("digits")[1].preprocessing)
    options = {} if share is None else {"dominant": 3, "share": share}
    stream = make_stream(
        open_dataset("digits"), order, seed=0, batch_size=size, limit=128, **options
    )
    hits = [adapter(preprocessing.apply(b.x)).argmax(1).eq(b.y) for b in stream]
    return sum(int(h.sum()) for h in hits) / stream.samples


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "size", "share"),
    [
        ("continual", 64, None),
        ("continual", 8, None),
        ("continual", 1, None),
        ("continual+sorted", 16, None),
        ("continual+correlated", 4, None),
        ("continual+dominant", 64, 0.8),
    ],
)
def test_no_stream_is_worse_than_the_source(order: str, size: int, share: float | None) -> None:
    source, stein, auto = (
        accuracy(on_digits(m), order, size, share) for m in ("source", "stein", "auto")
    )
    assert min(stein, auto) > source + 0.1  # by far more here


@pytest.mark.filterwarnings("error::fretta.errors.FrettaWarning")
@pytest.mark.filterwarnings("ignore::fretta.errors.SmallBatchWarning")
def test_without_batch_norms_auto_still_learns() -> None:
    """And nobody is told that it equals the source model."""
    adapter = fretta.adapt(build("vit-like"), "auto", e_margin=2.0)
    for x in batches(8, 8, 8):
        adapter(x)
    origin = adapter.model.origin.values()
    assert any(
        not torch.equal(p, o) for p, o in zip(adapter.model.parameters(), origin, strict=True)
    )


def test_without_batch_norms_a_collapse_is_seen_too() -> None:
    """Four classes along four axes. A shift that ends in one class is taken back within a batch
    or two: about 128 images are compared, and only some of each batch."""
    net = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4, bias=False))
    with torch.no_grad():
        net[1].weight.copy_(8 * torch.eye(4))
    adapter = fretta.adapt(net, "auto")
    y = torch.arange(64).repeat(4) // 16  # every fourth image has every class
    x = torch.eye(4)[y]
    assert adapter(x).argmax(1).equal(y)
    with torch.no_grad():
        adapter.model.adapted["0.bias"][0] += 50
    found = [adapter(x).argmax(1).eq(y).float().mean() for _ in range(3)]
    assert found[-1] == 1
    assert isinstance(adapter.method, Auto)
    assert adapter.method.lr_factor == 0.25


@pytest.mark.parametrize(("norm", "power"), [(nn.BatchNorm1d, 1.0), (nn.LayerNorm, 0.5)])
def test_small_batches_learn_less(norm: type[nn.Module], power: float) -> None:
    """By n / 64 with batch norms, whose statistics are noisy then; else by the root of it."""
    adapter = fretta.adapt(nn.Sequential(norm(4), nn.Linear(4, 4)), "auto", e_margin=2.0)
    for size, part in ((64, 1.0), (16, 1 / 4), (1, 1 / 64), (100, 1.0)):
        adapter(torch.randn(size, 4))
        (group,) = adapter.method.opt.param_groups
        assert group["lr"] == pytest.approx(Auto.lr * part**power)


@pytest.mark.parametrize("statistics", [0.3, "moving", "adaptive"])
@pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
def test_other_statistics_with_a_method_that_learns(statistics: str | float) -> None:
    """A gradient flows past them, in the layers behind the first; under autocast they stay wide."""
    plain, narrow = (
        fretta.adapt(build("resnet-like"), "tent", statistics=statistics) for _ in "ab"
    )
    for x in batches(6, 20):
        plain(x)
        with torch.autocast("cpu", torch.bfloat16):
            narrow(x)
    assert not torch.equal(plain.model.adapted["bn1.weight"], plain.model.origin["bn1.weight"])
    kinds = {b.dtype for b in narrow.model.net.buffers() if b.is_floating_point()}
    assert kinds == {torch.float32}


@pytest.mark.parametrize("guard", [None, "rollback"])
def test_a_network_with_one_batch_norm_has_a_state(guard: str | None) -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Flatten(), nn.LazyLinear(4))
    net(batches(2)[0])
    adapter, again = (fretta.adapt(net.eval(), "auto", guard=guard) for _ in range(2))
    adapter(batches(64)[0])
    again.load_state_dict(adapter.state_dict())
    x = batches(8, seed=1)[0]
    assert torch.equal(adapter.predict(x), again.predict(x))
