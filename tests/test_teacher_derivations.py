"""CoTTA, RoTTA, NOTE and MEMO against plain re-derivations in float64; see test_derivations.py.

The references have a second network as teacher, lists of images as memory, and batch norms written
out. Augmentation is a fixed function, so that both sides see the same.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import fretta
from nets import CLASSES, TIGHT, batches
from test_derivations import HEADS, Reference, both, double_net, double_stream, softmax

pytestmark = pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
LR = 1e-3
slow = pytest.mark.slow


def darker(p: Tensor) -> Tensor:
    return 0.8 * p.flip(-1)


def ce(target: Tensor, p: Tensor) -> Tensor:
    return -(softmax(target).detach() * torch.log(softmax(p))).sum()


@both
@pytest.mark.parametrize(("p_th", "symmetric"), [(0.0, True), (1.1, False)])
def test_cotta(net: str, p_th: float, symmetric: bool) -> None:
    ref = Reference(net, HEADS[net], everything=True)
    source, teacher = copy.deepcopy(ref.net), copy.deepcopy(ref.net)
    coin, alpha, restore, views = torch.Generator().manual_seed(5), 0.9, 0.3, 2
    adapter = fretta.adapt(
        double_net(net), "cotta", lr=LR, alpha=alpha, restore=restore, p_th=p_th, views=views,
        symmetric=symmetric, augment=darker, mean=0.0, std=1.0, seed=5,
    )  # fmt: skip
    for x in double_stream():
        sure = torch.stack([softmax(row).max() for row in source(x)]).mean() >= p_th
        target = teacher(x) if sure else sum(teacher(darker(x)) for _ in range(views)) / views
        target = target.detach()
        p = ref.net(x)
        loss = sum(ce(t, row) for t, row in zip(target, p, strict=True)) / len(x)
        if symmetric:
            back = [
                -(softmax(row) * torch.log(softmax(t))).sum()
                for t, row in zip(target, p, strict=True)
            ]
            loss = 0.5 * loss + 0.5 * sum(back) / len(x)
        ref.adam(loss, LR)
        with torch.no_grad():
            pairs = zip(teacher.parameters(), ref.parameters, source.parameters(), strict=True)
            for t, s, first in pairs:
                t.copy_(alpha * t + (1 - alpha) * s)
                back_to_source = torch.rand(s.shape, generator=coin) < restore
                s[back_to_source] = first[back_to_source]
        torch.testing.assert_close(adapter(x), target, atol=TIGHT, rtol=0)
    drift = max((a - b).abs().max() for a, b in zip(ref.parameters, ref.start, strict=True))
    assert drift > 1e-4
    # what predicts is the teacher
    torch.testing.assert_close(adapter.predict(x), teacher(x).detach(), atol=TIGHT, rtol=0)


class Written(nn.Module):
    """A batch norm written out; `rule(layer, x)` gives mean and variance, broadcastable to x."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = layer.weight, layer.bias, layer.eps
        self.mean, self.var = layer.running_mean.clone(), layer.running_var.clone()
        self.rule: Callable[[Written, Tensor], tuple[Tensor, Tensor]]

    def forward(self, x: Tensor) -> Tensor:
        shape = (1, -1, *[1] * (x.dim() - 2))
        mean, var = self.rule(self, x)
        y = (x - mean) / torch.sqrt(var + self.eps)
        return y * self.weight.view(shape) + self.bias.view(shape)


def written(name: str) -> tuple[nn.Module, list[Written]]:
    """The network with its batch norms written out, and these."""
    net = double_net(name).requires_grad_(False)
    layers = []
    for path, module in list(net.named_modules()):
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            parent, _, child = path.rpartition(".")
            layers.append(Written(module))
            setattr(net.get_submodule(parent), child, layers[-1])
    return net.eval(), layers


def affine(layers: list[Written]) -> list[Tensor]:
    tensors = [t for layer in layers for t in (layer.weight, layer.bias)]
    return [t.requires_grad_() for t in tensors]


def stored(layer: Written, x: Tensor) -> tuple[Tensor, Tensor]:
    shape = (1, -1, *[1] * (x.dim() - 2))
    return layer.mean.view(shape), layer.var.view(shape)


@pytest.mark.parametrize("net", ["resnet-like", "nested-bn"])
@pytest.mark.parametrize(("size", "every"), [(6, 5), pytest.param(4, 8, marks=slow)])
def test_rotta(net: str, size: int, every: int) -> None:
    alpha, nu, lambda_t, lambda_u = 0.2, 0.1, 1.5, 0.7
    adapter = fretta.adapt(
        double_net(net), "rotta", lr=LR, memory=size, update_every=every, nu=nu, alpha=alpha,
        lambda_t=lambda_t, lambda_u=lambda_u, augment=darker, mean=0.0, std=1.0,
    )  # fmt: skip
    student, own = written(net)
    teacher, theirs = written(net)
    optimizer = torch.optim.Adam(affine(own), lr=LR)

    def moving(layer: Written, x: Tensor) -> tuple[Tensor, Tensor]:
        axes = [0, *range(2, x.dim())]
        mean = (1 - alpha) * layer.mean + alpha * x.mean(axes)
        var = (1 - alpha) * layer.var + alpha * x.var(axes, correction=0)
        layer.mean, layer.var = mean.detach(), var.detach()
        shape = (1, -1, *[1] * (x.dim() - 2))
        return mean.view(shape), var.view(shape)

    memory: dict[int, list[list]] = {c: [] for c in range(CLASSES)}  # [image, uncertainty, age]
    count = 0

    def score(age: int, u: float) -> float:
        return lambda_t / (1 + math.exp(-age / size)) + lambda_u * u / math.log(CLASSES)

    def admit(image: Tensor, k: int, u: float) -> None:
        held = sum(map(len, memory.values()))
        among = [k]
        if len(memory[k]) < size / CLASSES:
            most = max(map(len, memory.values()))
            among = [c for c in memory if len(memory[c]) == most] if held >= size else []
        worst = None
        for c in among:
            for item in memory[c]:
                if worst is None or score(item[2], item[1]) >= score(worst[1][2], worst[1][1]):
                    worst = (c, item)
        if worst is not None:
            if not score(worst[1][2], worst[1][1]) > score(0, u):
                return
            memory[worst[0]] = [item for item in memory[worst[0]] if item is not worst[1]]
        memory[k].append([image, u, 0])

    for x in double_stream():
        for layer in theirs:
            layer.rule = stored
        out = teacher(x)
        torch.testing.assert_close(adapter(x), out, atol=TIGHT, rtol=0)
        for image, row in zip(x, out, strict=True):
            q = softmax(row)
            admit(image, int(row.argmax()), float(-(q * torch.log(q + 1e-6)).sum()))
            for items in memory.values():
                for item in items:
                    item[2] += 1
            count += 1
            if count % every:
                continue
            kept = [item for items in memory.values() for item in items]
            images = torch.stack([item[0] for item in kept])
            for layer in [*own, *theirs]:
                layer.rule = moving
            target, p = teacher(images), student(darker(images))
            for layer in theirs:
                layer.rule = stored
            losses = [
                math.exp(-age / size) / (1 + math.exp(-age / size)) * ce(t, row)
                for (_, _, age), t, row in zip(kept, target, p, strict=True)
            ]
            optimizer.zero_grad()
            (sum(losses) / len(kept)).backward()
            optimizer.step()
            with torch.no_grad():
                for a, b in zip(theirs, own, strict=True):
                    a.weight.copy_((1 - nu) * a.weight + nu * b.weight)
                    a.bias.copy_((1 - nu) * a.bias + nu * b.bias)
    assert count // every > 3


@pytest.mark.parametrize("net", ["resnet-like", "nested-bn"])
@pytest.mark.parametrize(
    ("size", "every", "k"), [pytest.param(64, 7, 1.0, marks=slow), (5, 11, 0.2)]
)
def test_note(net: str, size: int, every: int, k: float) -> None:
    """One image after the other; the random choices are drawn again in the same order."""
    m, generator = 0.1, torch.Generator().manual_seed(7)
    adapter = fretta.adapt(
        double_net(net), "note", lr=LR, k=k, memory=size, update_every=every, bn_momentum=m, seed=7
    )
    model, layers = written(net)
    optimizer = torch.optim.Adam(affine(layers), lr=LR)

    def corrected(mean: Tensor, var: Tensor, x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        if x.dim() == 2 or x[0, 0].numel() == 1:
            return mean, var
        L = x[0, 0].numel()
        own_mean = x.mean((2, 3), keepdim=True)
        own_var = ((x - own_mean) ** 2).sum((2, 3), keepdim=True) / (L - 1)

        def soft(t: Tensor, by: Tensor) -> Tensor:
            return torch.sign(t) * torch.clamp(t.abs() - by, min=0)

        new_mean = mean + soft(own_mean - mean, k * torch.sqrt((var + eps) / L))
        change = soft(own_var - var, k * (var + eps) * math.sqrt(2 / (L - 1)))
        return new_mean, torch.clamp(var + change, min=0)

    def running(layer: Written, x: Tensor) -> tuple[Tensor, Tensor]:
        return corrected(*stored(layer, x), x, layer.eps)

    def of_batch(layer: Written, x: Tensor) -> tuple[Tensor, Tensor]:
        axes, shape = [0, *range(2, x.dim())], (1, -1, *[1] * (x.dim() - 2))
        mean, var = x.mean(axes), x.var(axes, correction=1)
        layer.mean = (1 - m) * layer.mean + m * mean.detach()
        layer.var = (1 - m) * layer.var + m * var.detach()
        return corrected(mean.view(shape), var.view(shape), x, layer.eps)

    memory: list[tuple[int, Tensor]] = []
    seen = [0] * CLASSES
    count = 0

    def leave(label: int, draw: float) -> None:
        places = [i for i, (other, _) in enumerate(memory) if other == label]
        memory.pop(places[int(draw * len(places))])

    for x in double_stream():
        ours = adapter(x)
        for i, image in enumerate(x):
            for layer in layers:
                layer.rule = running
            row = model(image[None])[0].detach()
            torch.testing.assert_close(ours[i], row, atol=TIGHT, rtol=0)
            c = int(row.argmax())
            seen[c] += 1
            which_class, which, chance = torch.rand(3, generator=generator).tolist()
            held = [sum(label == other for label, _ in memory) for other in range(CLASSES)]
            keep = True
            if len(memory) == size:
                largest = [other for other in range(CLASSES) if held[other] == max(held)]
                if c not in largest:
                    leave(largest[int(which_class * len(largest))], which)
                elif chance <= held[c] / seen[c]:
                    leave(c, which)
                else:
                    keep = False
            if keep:
                memory.append((c, image))
            count += 1
            if count % every == 0:
                for layer in layers:
                    layer.rule = of_batch
                q = torch.stack([softmax(r) for r in model(torch.stack([e[1] for e in memory]))])
                optimizer.zero_grad()
                (-(q * torch.log(q + 1e-6)).sum() / q.numel()).backward()
                optimizer.step()
    assert count // every > 2


@pytest.mark.parametrize("net", ["resnet-like", "vit-like", "group-norm"])
def test_memo(net: str) -> None:
    def views(p: Tensor) -> Tensor:
        return torch.stack([view * (1 - 0.1 * j) for j, view in enumerate(p)])

    N, steps, lr = 4.0, 2, 0.05
    adapter = fretta.adapt(
        double_net(net), "memo", lr=lr, views=3, steps=steps, prior_strength=N, augment=views,
        mean=0.0, std=1.0,
    )  # fmt: skip
    first, layers = written(net)

    def mixed(layer: Written, x: Tensor) -> tuple[Tensor, Tensor]:
        axes, shape = [0, *range(2, x.dim())], (1, -1, *[1] * (x.dim() - 2))
        mean = N / (N + 1) * layer.mean + x.mean(axes).detach() / (N + 1)
        var = N / (N + 1) * layer.var + x.var(axes, correction=1).detach() / (N + 1)
        return mean.view(shape), var.view(shape)

    for layer in layers:
        layer.rule = mixed
    moved = 0.0
    for x in [x.double() for x in batches(3, 2)]:
        expected = []
        for image in x:
            model = copy.deepcopy(first).requires_grad_()
            for _ in range(steps):
                p = model(views(image.expand(3, -1, -1, -1)))
                mean = sum(softmax(row) for row in p) / 3
                loss = -(mean * torch.log(mean)).sum()
                gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
                with torch.no_grad():
                    for t, g in zip(model.parameters(), gradients, strict=True):
                        t.sub_(0 if g is None else lr * g)
            expected.append(model(image[None])[0].detach())
            moved = max(moved, float((expected[-1] - first(image[None])[0]).abs().max()))
        torch.testing.assert_close(adapter(x), torch.stack(expected), atol=TIGHT, rtol=0)
    assert moved > 1e-2
