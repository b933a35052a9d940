"""Image memories, robust and instance-aware batch norm, teacher and per-image episodes, by hand."""

from __future__ import annotations

import io
import math

import pytest
import torch
from torch import Tensor, nn

import fretta
from fretta.errors import ConfigError, FrettaWarning, NeedError
from fretta.inspection import inspect
from fretta.parts.classifier import Classifier
from fretta.parts.images import ImageMemory, ReservoirMemory, TimelyMemory
from fretta.parts.moving import robust, shrink
from fretta.parts.replaced import fixed_statistics, normalized_by, source_statistics
from nets import batches, build, same

quiet = pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")


def image(value: float) -> Tensor:
    return torch.full((1, 2, 2), value)


def held(memory: ImageMemory) -> list[tuple[int, float]]:
    return [(k, float(i[0, 0, 0])) for k, i in zip(memory.labels, memory.images, strict=True)]


def test_fifo_keeps_the_last() -> None:
    memory = ImageMemory(2)
    for n, label in enumerate([1, 0, 1]):
        memory.add(image(n), label)
    assert held(memory) == [(0, 1.0), (1, 2.0)]
    images, ages = memory.batch(torch.zeros(1, dtype=torch.float64))
    assert images[:, 0, 0, 0].tolist() == [1.0, 2.0]
    assert ages.tolist() == [2.0, 1.0]
    memory.add(torch.ones(1, 3, 3), 0)  # another size: they cannot be in one batch
    assert len(memory) == 1
    assert memory.births == [3]
    assert (ImageMemory(2)._largest(), len(memory.snapshot())) == ([], 1)  # nothing held: no class


def test_timely_memory_by_hand() -> None:
    memory = TimelyMemory(4, lambda_t=1.0, lambda_u=1.0)
    memory.classes = 2  # two places each
    assert memory.score(0, 0.0) == pytest.approx(0.5)
    assert memory.score(4, math.log(2)) == pytest.approx(1 / (1 + math.exp(-1)) + 1)
    memory.add(image(0), 0, 0.1)
    memory.add(image(1), 0, 0.3)
    memory.add(image(2), 0, 0.2)  # class 0 is full: the most uncertain and old one leaves
    assert held(memory) == [(0, 0.0), (0, 2.0)]
    memory.add(image(3), 0, 0.69)  # worse than all of its class: not kept
    assert held(memory) == [(0, 0.0), (0, 2.0)]
    memory.add(image(4), 1, 0.69)
    assert held(memory) == [(0, 0.0), (0, 2.0), (1, 4.0)]
    memory.lambda_u = 0.0  # age alone: the oldest of its class leaves
    memory.add(image(5), 0, 0.69)
    assert held(memory) == [(0, 2.0), (1, 4.0), (0, 5.0)]
    assert memory.batch(image(0))[1].tolist() == [4.0, 1.0, 2.0]  # by class
    crowded = TimelyMemory(2, 1.0, 0.0)
    crowded.classes = 5  # less than one place each: at most one of a class
    for n, label in enumerate([3, 1, 4]):
        crowded.add(image(n), label)
    assert held(crowded) == [(1, 1.0), (4, 2.0)]


def test_reservoir_by_hand() -> None:
    memory = ReservoirMemory(3)
    for n, label in enumerate([0, 0, 1]):
        memory.add(image(n), label)
    memory.add(image(3), 1, draws=(0.9, 0.9, 0.0))  # not among the largest: one of these leaves
    assert held(memory) == [(0, 0.0), (1, 2.0), (1, 3.0)]
    memory.add(image(4), 1, draws=(0.0, 0.9, 0.67))  # two held of three seen: kept at up to 2/3
    assert held(memory) == [(0, 0.0), (1, 2.0), (1, 3.0)]
    memory.add(image(5), 1, draws=(0.0, 0.9, 0.5))  # 2 of 4
    assert held(memory) == [(0, 0.0), (1, 2.0), (1, 5.0)]
    for n, label in ((6, 0), (7, 2)):  # now 0 and 1 or 2 are largest alike
        memory.add(image(n), label, draws=(0.0, 0.0, 0.0))
    assert held(memory) == [(1, 5.0), (0, 6.0), (2, 7.0)]


def test_every_image_of_a_class_is_as_likely_to_stay() -> None:
    generator, kept = torch.Generator().manual_seed(0), torch.zeros(6)
    for _ in range(600):
        memory = ReservoirMemory(3)
        for n in range(6):
            memory.add(image(n), 0, draws=torch.rand(3, generator=generator).tolist())
        for _, n in held(memory):
            kept[int(n)] += 1
    assert (kept / 600 - 0.5).abs().max() < 0.08  # four standard errors


def test_memories_are_state() -> None:
    memory = TimelyMemory(3, 1.0, 1.0)
    memory.classes = 3
    for n in range(5):
        memory.add(image(n), n % 3, 0.1 * n)
    twin, copy = TimelyMemory(3, 1.0, 1.0), memory.snapshot()
    file = io.BytesIO()
    torch.save(memory.state_dict(), file)
    file.seek(0)
    twin.load_state_dict(torch.load(file, weights_only=True))
    assert same(twin.state_dict(), memory.state_dict())
    assert copy.images[0] is memory.images[0]  # shared, not copied
    memory.add(image(9), 0, 0.0)
    assert same(twin.state_dict(), copy.state_dict())
    assert not same(memory.state_dict(), copy.state_dict())


def tiny() -> nn.Sequential:
    net = nn.Sequential(nn.BatchNorm1d(1, eps=0.0)).double().eval()
    net[0].running_mean.fill_(1.0)
    net[0].running_var.fill_(4.0)
    return net


def test_robust_batch_norm_by_hand() -> None:
    net, x = tiny(), torch.tensor([[2.0], [4.0]]).double().requires_grad_()
    moving = source_statistics(net)
    with robust(net, moving, 0.5):
        y = net(x)
    mean, var = 0.5 * 1 + 0.5 * 3, 0.5 * 4 + 0.5 * 1  # the batch: mean 3, biased variance 1
    assert [float(t) for t in moving["0"]] == [mean, var]
    assert y.flatten().tolist() == pytest.approx([(v - mean) / math.sqrt(var) for v in (2, 4)])
    (gradient,) = torch.autograd.grad(y[1, 0], x)
    # dμ/dx = 1/4 each, dv/dx = 1/2 · (x - 3)
    own = [
        (i - 0.25) / math.sqrt(var) - (4 - mean) / 2 * var**-1.5 * s
        for i, s in ((0, -0.5), (1, 0.5))
    ]
    assert gradient.flatten().tolist() == pytest.approx(own)
    with fixed_statistics(net, moving):
        assert net(x[:1]).item() == pytest.approx((2 - mean) / math.sqrt(var))
    assert float(net[0].running_mean) == 1.0
    with normalized_by(net, lambda name, x, epsilon: 3 * x):
        assert net(x).flatten().tolist() == pytest.approx([6, 12])


def test_shrink() -> None:
    t = torch.tensor([-3.0, -1.0, 0.5, 2.5])
    assert shrink(t, torch.tensor(2.0)).tolist() == [-1.0, 0.0, 0.0, 0.5]


def test_instance_aware_batch_norm_by_hand() -> None:
    """L = 2, μ = 1, v = 4: what an image differs by counts beyond k standard errors."""
    net = nn.Sequential(nn.BatchNorm1d(1, eps=0.0), nn.Flatten(), nn.Linear(2, 2)).double().eval()
    net[0].running_mean.fill_(1.0)
    net[0].running_var.fill_(4.0)
    with torch.no_grad():
        net[2].weight.copy_(torch.eye(2))
        net[2].bias.zero_()
    x = torch.tensor([[[5.0, 9.0]], [[1.0, 2.0]]]).double()
    out = fretta.adapt(net, "note", k=1.0).predict(x)
    mean = 1 + (6 - math.sqrt(2))  # μ_i = 7, one standard error √(4 / 2)
    var = 4 + max(0.0, (8 - 4) - 4 * math.sqrt(2))  # v_i = 8, one is 4 √2: not beyond it
    expected = [[(v - mean) / math.sqrt(var) for v in (5, 9)], [0.0, 0.5]]
    torch.testing.assert_close(out, torch.tensor(expected).double())


def test_tensors_in_the_place_of_parameters() -> None:
    model = Classifier(build("resnet-like"))
    model.freeze()
    model.thaw(["fc.weight", "bn1.bias"])
    model.remember()
    (x,) = batches(4)
    before = model(x).detach()
    teacher = {name: 0 * p.detach() for name, p in model.adapted.items()}
    with model.using(teacher):
        assert torch.equal(model(x), model.net.fc.bias.expand(4, -1))
        with model.using(model.origin, aside=True):
            assert torch.equal(model(x), before)
            assert model.aside
        assert not model.aside
    assert torch.equal(model(x), before)
    assert model(x).requires_grad


@quiet
def test_per_image_episodes_are_single_images_from_the_source() -> None:
    x, y = batches(4, 3)
    a = fretta.adapt(build("resnet-like"), "tent", episodic="image", lr=1e-2, predict="after")
    out = torch.cat([a(x), a(y)])
    alone = [
        fretta.adapt(build("resnet-like"), "tent", lr=1e-2, predict="after")(image)
        for image in torch.cat([x, y]).split(1)
    ]
    assert torch.equal(out, torch.cat(alone))
    b = fretta.adapt(build("resnet-like"), "memo", views=2)
    twice = b(x[:1].repeat(2, 1, 1, 1))
    assert not torch.equal(twice[0], twice[1])  # random numbers go on from image to image
    with pytest.raises(ConfigError, match="episodic='always' cannot work"):
        fretta.adapt(build("resnet-like"), "tent", episodic="always")


@quiet
def test_an_update_inside_a_batch() -> None:
    """NOTE predicts what follows an update with the new model, and batches make no difference."""
    (x,) = batches(12)
    settings = {"memory": 4, "update_every": 5, "lr": 0.1}
    whole = fretta.adapt(build("resnet-like").double(), "note", **settings)
    parts = fretta.adapt(build("resnet-like").double(), "note", **settings)
    out = whole(x.double())
    torch.testing.assert_close(out, torch.cat([parts(p) for p in x.double().split(1)]))
    with torch.no_grad():
        first = fretta.adapt(build("resnet-like").double(), "note", **settings).predict(x.double())
    assert torch.equal(out[:5], first[:5])
    assert not torch.allclose(out[5:], first[5:], atol=1e-3)


@quiet
def test_features_are_those_of_what_is_returned() -> None:
    """The forward of CoTTA's source is not, and the pieces of NOTE are together."""
    x, y = batches(9, 9)
    a = fretta.adapt(build("resnet-like"), "cotta", p_th=0.0, alpha=0.5, lr=0.1)
    a(x)
    a.on_health(lambda health: None)  # somebody looks at the features
    head = [a.method.teacher[f"fc.{name}"].clone() for name in ("weight", "bias")]
    logits = a(y)
    assert a.head_input is not None
    torch.testing.assert_close(nn.functional.linear(a.head_input, *head), logits)
    b = fretta.adapt(build("resnet-like"), "note", memory=4, update_every=4)
    b.on_health(lambda health: None)
    logits = b(x)
    assert b.head_input is not None
    torch.testing.assert_close(b.model.head(b.head_input), logits)


def test_what_cannot_work_says_why() -> None:
    notes = {fit.method: fit for fit in inspect(build("vit-like"), batches(2)[0]).fits}
    for key in ("rotta", "note"):
        assert not notes[key].fits
        assert "LayerNorm" in notes[key].note
        with pytest.raises(NeedError, match="running statistics of batch-norm"):
            fretta.adapt(build("vit-like"), key)
    flat = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval()
    with pytest.raises(NeedError, match="single positions"):
        fretta.adapt(flat, "note")(torch.rand(2, 3, 2, 2))
    with pytest.warns(FrettaWarning, match="never asks for views"):
        fretta.adapt(build("resnet-like"), "cotta", p_th=0.2)(batches(16)[0])
