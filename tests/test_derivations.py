"""The paper variants against plain re-derivations in float64: loops, dense matrices, no shortcuts.

Each reference below is written from the equations and shares no code with the library: it runs the
network itself, computes the loss sample by sample, and takes optimizer steps of its own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fretta
from nets import CLASSES, TIGHT, batches, build

pytestmark = pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
LR = 3e-3
STREAM = (9, 9, 7, 9)


def double_net(name: str) -> nn.Module:
    return build(name).double()


def double_stream() -> list[Tensor]:
    return [x.double() for x in batches(*STREAM)]


class Reference:
    """A network in test-BN mode with norm-affine parameters that learn, and Adam by hand."""

    def __init__(
        self, name: str, head: str, skip: tuple[str, ...] = (), everything: bool = False
    ) -> None:
        self.net = double_net(name)
        norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm)
        self.parameters: list[Tensor] = []
        for p in self.net.parameters():
            p.requires_grad_(False)
        for module_name, module in self.net.named_modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.track_running_stats = False
                module.running_mean = module.running_var = None
            if isinstance(module, norms) and not module_name.startswith(skip or ("\0",)):
                self.parameters += [module.weight, module.bias]
        if everything:
            self.parameters = list(self.net.parameters())
        for p in self.parameters:
            p.requires_grad_(True)
        self.start = [p.detach().clone() for p in self.parameters]
        self.m = [torch.zeros_like(p) for p in self.parameters]
        self.v = [torch.zeros_like(p) for p in self.parameters]
        self.t = 0
        self.head = self.net.get_submodule(head)
        self.head.register_forward_pre_hook(lambda _, inputs: setattr(self, "z", inputs[0]))
        self.z: Tensor

    def gradients(self, loss: Tensor) -> list[Tensor]:
        raw = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        return [
            torch.zeros_like(p) if g is None else g
            for g, p in zip(raw, self.parameters, strict=True)
        ]

    @torch.no_grad()
    def adam(self, loss: Tensor, lr: float = LR) -> None:
        with torch.enable_grad():
            gradients = self.gradients(loss)
        self.t += 1
        for p, g, m, v in zip(self.parameters, gradients, self.m, self.v, strict=True):
            m.mul_(0.9).add_(0.1 * g)
            v.mul_(0.999).add_(0.001 * g * g)
            m_hat, v_hat = m / (1 - 0.9**self.t), v / (1 - 0.999**self.t)
            p.sub_(lr * m_hat / (v_hat.sqrt() + 1e-8))


def softmax(p: Tensor) -> Tensor:
    e = torch.exp(p - p.max())
    return e / e.sum()


def H(p: Tensor) -> Tensor:
    s = softmax(p)
    return -sum(q * torch.log(q) for q in s)


def cos(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b) / (a.norm() * b.norm())


def normalized_graph(G: Tensor) -> Tensor:
    D = torch.diag(G.abs().sum(1))
    root = torch.diag(torch.where(D.diagonal() > 0, D.diagonal() ** -0.5, 0))
    return root @ G @ root


# ---- the references: one generator of logits per method -----------------------------------------


def tent(ref: Reference, stream: list[Tensor]) -> list[Tensor]:
    out = []
    for x in stream:
        out.append(ref.net(x))
        ref.adam(sum(H(row) for row in out[-1]) / len(x))
    return out


def s_fret(ref: Reference, stream: list[Tensor]) -> list[Tensor]:
    out = []
    for x in stream:
        out.append(ref.net(x))
        z = ref.z
        columns = [
            z[:, j] / z[:, j].norm() if z[:, j].any() else z[:, j] * 0 for j in range(z.shape[1])
        ]
        Z = torch.stack(columns, 1)
        G = Z.T @ Z
        ref.adam((G - torch.diag(G.diagonal())).abs().sum())
    return out


def g_fret(
    ref: Reference,
    stream: list[Tensor],
    lam: float = 1.0,
    k1: int = 100,
    k2: float = 0.95,
    mask: Tensor | None = None,
    on: tuple[bool, bool, bool, bool] = (True, True, True, True),
) -> list[Tensor]:
    out = []
    bank: list[tuple[int, float, Tensor]] = []  # (class, entropy, z)
    l_r_a, l_r_r, l_p_a, l_p_r = on
    for x in stream:
        p = ref.net(x)
        z = ref.z
        out.append(p)
        d = z.shape[1]
        G_F = z.T @ z
        M = torch.eye(d).double() if mask is None else mask
        G_A = G_F * M
        R_A = z @ normalized_graph(G_A)
        R_R = z @ normalized_graph(G_F - G_A)
        P_A, P_R = ref.head(R_A), ref.head(R_R)
        for i in range(len(x)):
            bank.append((int(p[i].argmax()), H(p[i]).item(), z[i].detach()))
        centers = []
        for c in range(CLASSES):
            own = sorted((e for e in bank if e[0] == c), key=lambda e: e[1])[:k1]
            centers.append(
                sum(e[2] for e in own) / len(own) if own else ref.head.weight[c].detach()
            )
        order = sorted(range(len(x)), key=lambda i: H(p[i]).item())
        confident = set(order[: max(1, math.floor(k2 * len(x)))])
        L_R, L_P, kept = [], [], 0
        for i in range(len(x)):
            sims = torch.stack([cos(R_A[i], c) for c in centers])
            o = int(p[i].argmax())
            if i not in confident or int(sims.argmax()) != o:
                continue
            kept += 1
            redundant = torch.exp(cos(R_A[i], R_R[i]))
            top = torch.exp(sims[o])
            below = (torch.exp(sims).sum() if l_r_a else top) + (redundant if l_r_r else 0)
            L_R.append(-torch.log(top / below))
            term = torch.zeros(()).double()
            if l_p_a:
                term = term + H(P_A[i])
            if l_p_r:
                term = term - (softmax(P_R[i]) * torch.log(softmax(1 - P_A[i]))).sum()
            L_P.append(term)
        if not kept:
            continue
        loss = lam * sum(L_P) / kept
        if l_r_a or l_r_r:
            loss = loss + sum(L_R) / kept
        ref.adam(loss)
    return out


def eta(
    ref: Reference, stream: list[Tensor], source: list[Tensor] | None = None, alpha: float = 0.0
) -> list[Tensor]:
    E0, epsilon = 0.9 * math.log(CLASSES), 0.95
    fisher = [torch.zeros_like(p) for p in ref.parameters]
    for x in source or []:
        p = ref.net(x)
        loss = -sum(torch.log(softmax(row))[int(row.argmax())] for row in p) / len(x)
        for f, g in zip(fisher, ref.gradients(loss), strict=True):
            f += g * g / len(source)
    out, mean = [], None
    for x in stream:
        p = ref.net(x)
        out.append(p)
        chosen = []
        for row in p:
            probability = softmax(row).detach()
            if H(row) >= E0 or (mean is not None and abs(cos(mean, probability)) >= epsilon):
                continue
            chosen.append(row)
        if not chosen:
            continue
        batch_mean = sum(softmax(row).detach() for row in chosen) / len(chosen)
        mean = batch_mean if mean is None else 0.9 * mean + 0.1 * batch_mean
        loss = sum(H(row) * math.exp(E0 - H(row).item()) for row in chosen) / len(chosen)
        for f, p_, p0 in zip(fisher, ref.parameters, ref.start, strict=True):
            loss = loss + alpha * (f * (p_ - p0) ** 2).sum()
        ref.adam(loss)
    return out


def sar(ref: Reference, stream: list[Tensor], threshold: float = 0.0) -> list[Tensor]:
    E0, rho = 0.95 * math.log(CLASSES), 0.05
    velocity: list[Tensor] | None = None
    average: float | None = None
    out = []
    for x in stream:
        p = ref.net(x)
        out.append(p)
        first = [i for i in range(len(x)) if H(p[i]) < E0]
        if not first:
            continue
        g = ref.gradients(sum(H(p[i]) for i in first) / len(first))
        norm = math.sqrt(sum(float((t * t).sum()) for t in g))
        old = [t.detach().clone() for t in ref.parameters]
        with torch.no_grad():
            for t, step in zip(ref.parameters, g, strict=True):
                t += rho * step / norm
        p2 = ref.net(x)
        second = [i for i in first if H(p2[i]) < E0]
        loss = sum(H(p2[i]) for i in second) / len(second)
        g = ref.gradients(loss)
        velocity = (
            g if velocity is None else [0.9 * v + t for v, t in zip(velocity, g, strict=True)]
        )
        with torch.no_grad():
            for t, back, v in zip(ref.parameters, old, velocity, strict=True):
                t.copy_(back - LR * v)
            average = loss.item() if average is None else 0.9 * average + 0.1 * loss.item()
            if average < threshold:
                for t, back in zip(ref.parameters, ref.start, strict=True):
                    t.copy_(back)
                velocity = average = None
    return out


def tsd(ref: Reference, stream: list[Tensor], k1: int = 100) -> list[Tensor]:
    out = []
    weight = ref.head.weight.detach().clone()
    bank = []
    for w in weight:
        p = ref.head(w).detach()
        bank.append((int(p.argmax()), H(p).item(), w / w.norm()))
    for x in stream:
        p = ref.net(x)
        z = ref.z
        out.append(p.detach().clone())
        for i in range(len(x)):
            bank.append((int(p[i].argmax()), H(p[i]).item(), (z[i] / z[i].norm()).detach()))
        prototypes = []
        for c in range(CLASSES):
            own = sorted((e for e in bank if e[0] == c), key=lambda e: e[1])[:k1]
            prototypes.append(sum((e[2] for e in own), torch.zeros(z.shape[1]).double()))
        losses = []
        for i in range(len(x)):
            sims = torch.stack([cos(z[i], c) if c.any() else z[i].sum() * 0 for c in prototypes])
            if int(sims.argmax()) != int(p[i].argmax()):
                continue
            q, target = softmax(sims), softmax(p[i]).detach()
            losses.append((q * (torch.log(q) - torch.log(target))).sum())
        if losses:
            ref.adam(sum(losses) / len(losses))
    return out


# ---- the comparison -----------------------------------------------------------------------------

HEADS = {"resnet-like": "fc", "vit-like": "head", "nested-bn": "4", "group-norm": "8"}
LAST = {"resnet-like": ("layer4",), "vit-like": ("blocks.1", "norm"), "group-norm": ("4",)}
both = pytest.mark.parametrize("net", ["resnet-like", "vit-like"])  # non-negative and signed


def compare(
    net: str,
    key: str,
    reference: Callable[..., list[Tensor]],
    ref: Reference,
    moves: bool = True,
    **settings: Any,
) -> fretta.Adapter:
    given = settings.pop("given", {})
    adapter = fretta.adapt(double_net(net), key, **{"lr": LR, **settings})
    stream = double_stream()
    ours = [*[adapter(x) for x in stream], *adapter.model.parameters()]
    for a, b in zip(ours, [*reference(ref, stream, **given), *ref.parameters], strict=True):
        torch.testing.assert_close(a, b.detach(), atol=TIGHT, rtol=0)
    drift = max(
        (p - p0).abs().max().item() for p, p0 in zip(ref.parameters, ref.start, strict=True)
    )
    assert drift > 1e-4 or not moves, "nothing was learned, so nothing was compared"
    return adapter


@pytest.mark.parametrize("net", list(HEADS))
@pytest.mark.parametrize(("key", "reference"), [("tent", tent), ("s-fret", s_fret)])
def test_tent_and_s_fret(net: str, key: str, reference: Callable[..., list[Tensor]]) -> None:
    compare(net, key, reference, Reference(net, HEADS[net]))


def random_mask(d: int = 16) -> Tensor:
    noise = torch.rand(d, d, generator=torch.Generator().manual_seed(2)).double()
    return (noise + noise.T) / 2


@both
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"lam": 10.0, "k1": 2, "k2": 0.5},
        {"lam": 0.1, "k1": 1, "k2": 1.0},
        {"mask": torch.eye(16).double()},
        {"mask": random_mask()},
    ],
)
def test_g_fret(net: str, values: dict[str, Any]) -> None:
    ref = Reference(net, HEADS[net])
    adapter = compare(net, "g-fret", g_fret, ref, given=values, **{"lam": 1.0, **values})
    assert 0 < (adapter.pass_rate or 0) <= 1


SWITCHES = ("l_r_a", "l_r_r", "l_p_a", "l_p_r")


@both
@pytest.mark.parametrize("off", ["0", "1", "2", "3", "123", "023", "013", "012"])
def test_g_fret_ablations(net: str, off: str) -> None:
    on = tuple(str(i) not in off for i in range(4))
    values = dict(zip(SWITCHES, on, strict=True))
    compare(net, "g-fret", g_fret, Reference(net, HEADS[net]), given={"on": on}, lam=1.0, **values)


MARGINS = {"e_margin": 0.9, "d_margin": 0.95}


@both
def test_eta(net: str) -> None:
    adapter = compare(net, "eta", eta, Reference(net, HEADS[net]), **MARGINS)
    assert 0 < (adapter.pass_rate or 0) < 1


@both
def test_eata(net: str) -> None:
    source = [x.double() for x in batches(6, 6, 6, seed=5)]
    given = {"source": source, "alpha": 50.0}
    pairs = [(x, torch.zeros(len(x))) for x in source]  # labels are ignored
    ref = Reference(net, HEADS[net])
    compare(net, "eata", eta, ref, given=given, source=pairs, fisher_alpha=50.0, **MARGINS)


@pytest.mark.parametrize("net", list(LAST))
@pytest.mark.parametrize("threshold", [0.0, 1.2])
def test_sar(net: str, threshold: float) -> None:
    ref = Reference(net, HEADS[net], skip=LAST[net])
    values = {"e_margin": 0.95, "reset_threshold": threshold}
    given = {"threshold": threshold}  # above 0 it begins again, maybe after the last batch
    compare(net, "sar", sar, ref, moves=not threshold, given=given, **values)


@both
@pytest.mark.parametrize("k1", [100, 1])
def test_tsd(net: str, k1: int) -> None:
    ref = Reference(net, HEADS[net], everything=True)
    compare(net, "tsd", tsd, ref, given={"k1": k1}, k1=k1)


# ---- TIPI and TEA: random, so the reference is fed the same random numbers ----------------------


@both
@pytest.mark.parametrize("tent_coeff", [0.0, 0.5])
def test_tipi(net: str, tent_coeff: float) -> None:
    std = (0.2, 0.3, 0.5)
    adapter = fretta.adapt(double_net(net), "tipi", lr=LR, std=std, tent_coeff=tent_coeff, seed=3)
    ref = Reference(net, HEADS[net])
    generator = torch.Generator().manual_seed(3)
    epsilon = (2 / 255) / torch.tensor(std).double().view(3, 1, 1)
    for x in double_stream():
        clean = ref.net(x)
        start = (
            torch.zeros_like(x).uniform_(-1, 1, generator=generator) * epsilon
        ).requires_grad_()

        def divergence(p: Tensor, clean: Tensor = clean) -> Tensor:
            total = torch.zeros(()).double()
            for a, b in zip(p, clean, strict=True):
                q, target = softmax(a), softmax(b).detach()
                total = total + (q * (torch.log(q) - torch.log(target))).sum()
            return total

        (g,) = torch.autograd.grad(divergence(ref.net(x + start)), start)
        delta = start.detach() + epsilon * torch.sign(g)
        delta = torch.max(torch.min(delta, epsilon), -epsilon)
        loss = divergence(ref.net(x + delta)) / len(x)
        if tent_coeff:
            loss = loss + tent_coeff * sum(H(row) for row in clean) / len(x)
        ref.adam(loss, LR * len(x) / 128)
        torch.testing.assert_close(adapter(x), ref.net(x).detach(), atol=TIGHT, rtol=0)


@both
def test_tea(net: str) -> None:
    size, steps, reinit = 12, 3, 0.4
    adapter = fretta.adapt(
        double_net(net), "tea", lr=LR, sgld_steps=steps, buffer_size=size, reinit=reinit, seed=4
    )
    ref = Reference(net, HEADS[net])
    generator = torch.Generator().manual_seed(4)
    buffer: dict[int, Tensor] = {}
    low = high = None

    def lse(p: Tensor) -> Tensor:
        return torch.stack([torch.log(torch.exp(row).sum()) for row in p])

    for x in double_stream():
        if low is None:
            low = torch.stack([x[:, c].min() for c in range(3)]).view(1, 3, 1, 1)
            high = torch.stack([x[:, c].max() for c in range(3)]).view(1, 3, 1, 1)
        rows = torch.randint(size, (len(x),), generator=generator).tolist()
        noise = low + (high - low) * torch.empty_like(x).uniform_(generator=generator)
        fresh = torch.rand(len(x), generator=generator) < reinit
        fake = torch.stack(
            [buffer[r] if r in buffer and not fresh[i] else noise[i] for i, r in enumerate(rows)]
        )
        for _ in range(steps):
            fake = fake.detach().requires_grad_()
            (g,) = torch.autograd.grad(lse(ref.net(fake)).sum(), fake)
            fake = fake.detach() + 0.1 * g + 0.01 * torch.empty_like(x).normal_(generator=generator)
        for i, r in enumerate(rows):
            buffer[r] = fake[i]
        ref.adam(lse(ref.net(fake)).mean() - lse(ref.net(x)).mean())
        torch.testing.assert_close(adapter(x), ref.net(x).detach(), atol=TIGHT, rtol=0)


def test_bn_mixes_statistics() -> None:
    """alpha = 0 is source, 1 is test BN, between them the statistics are mixed layer by layer."""
    x = torch.tensor([[1.0, 5.0], [3.0, 9.0]]).double()
    net = nn.Sequential(nn.BatchNorm1d(2, eps=1e-12), nn.Linear(2, 2)).double().eval()
    net[0].running_mean.copy_(torch.tensor([0.0, 1.0]))
    net[0].running_var.copy_(torch.tensor([4.0, 2.0]))
    with torch.no_grad():
        net[1].weight.copy_(torch.eye(2))
        net[1].bias.zero_()
    for alpha in (0.0, 0.25, 1.0):
        mean = (1 - alpha) * torch.tensor([0.0, 1.0]) + alpha * torch.tensor([2.0, 7.0])
        var = (1 - alpha) * torch.tensor([4.0, 2.0]) + alpha * torch.tensor([1.0, 4.0])
        adapter = fretta.adapt(copy.deepcopy(net), "bn", alpha=alpha)
        for out in (adapter(x), adapter.predict(x)):
            torch.testing.assert_close(out, (x - mean) / var.sqrt())
