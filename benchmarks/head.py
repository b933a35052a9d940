"""What G-FRET costs after the backbone, beside the same step written as in a textbook.

    python benchmarks/head.py [--batch 128] [--classes 1000] [--features 2048] [--k1 100]

The network is a batch norm, a ReLU and a linear head, so that a step is graph, bank, losses and
their backward and next to nothing else. Timed in turns, in one process:

    head       one forward and backward of the linear head alone
    g-fret     fretta's step, with a full bank
    textbook   loops over classes, d×d matrices and their inverses, a B×C×d tensor

The two steps are compared as well: they must move the parameters alike.
"""

from __future__ import annotations

import copy
import json
import statistics

import torch
from common import arguments, seconds, write
from torch import Tensor, nn
from torch.nn import functional as F

import fretta


def network(features: int, classes: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.BatchNorm1d(features), nn.ReLU(), nn.Linear(features, classes, bias=False)
    )


class Textbook:
    """G-FRET (paper variant), equation by equation, with nothing saved."""

    def __init__(self, net: nn.Sequential, k1: int, k2: float = 0.95, lam: float = 0.01) -> None:
        self.net = copy.deepcopy(net).eval().requires_grad_(False)
        norm = self.net[0].train().requires_grad_(True)
        norm.track_running_stats = False
        self.k1, self.k2, self.lam = k1, k2, lam
        self.optimizer = torch.optim.Adam(norm.parameters(), lr=1e-4)
        head: nn.Linear = self.net[2]
        self.head = head
        self.supports = torch.empty(0, head.in_features)
        self.labels = torch.empty(0, head.out_features)  # one-hot
        self.entropies = torch.empty(0)

    def __call__(self, x: Tensor) -> Tensor:
        z = self.net[1](self.net[0](x))
        p = self.head(z)
        d, C = z.shape[1], p.shape[1]
        G_F = z.T @ z
        G_A = G_F * torch.eye(d)
        R_A, R_R = z @ self.normalized(G_A), z @ self.normalized(G_F - G_A)
        P_A, P_R = self.head(R_A), self.head(R_R)
        c = self.centers(z.detach(), p.detach(), C)
        cosine = F.cosine_similarity(R_A[:, None, :], c[None], dim=2)  # through (B, C, d)
        H = self.entropy(p.detach())
        o = p.detach().argmax(1)
        low = torch.zeros(len(x), dtype=torch.bool)
        low[H.argsort()[: max(1, int(self.k2 * len(x)))]] = True
        kept = low & (cosine.detach().argmax(1) == o)
        redundant = F.cosine_similarity(R_A, R_R, dim=1)[:, None]
        L_R = F.cross_entropy(torch.cat([cosine, redundant], 1)[kept], o[kept])
        negative = -(P_R.softmax(1) * (1 - P_A).log_softmax(1)).sum(1)
        loss = L_R + self.lam * (self.entropy(P_A) + negative)[kept].mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return p.detach()

    @staticmethod
    def entropy(p: Tensor) -> Tensor:
        return -(p.softmax(1) * p.log_softmax(1)).sum(1)

    @staticmethod
    def normalized(G: Tensor) -> Tensor:
        degrees = G.abs().sum(1)
        root = torch.inverse(torch.diag((degrees + (degrees == 0)).sqrt()))
        root = root * (degrees > 0)
        return root @ G @ root

    def centers(self, z: Tensor, p: Tensor, classes: int) -> Tensor:
        """Append, sort every class, keep K1 of each."""
        self.supports = torch.cat([self.supports, z])
        self.labels = torch.cat([self.labels, F.one_hot(p.argmax(1), classes).float()])
        self.entropies = torch.cat([self.entropies, self.entropy(p)])
        keep, means, predicted = [], [], self.labels.argmax(1)
        for j in range(classes):
            own = (predicted == j).nonzero().flatten()
            own = own[self.entropies[own].argsort()][: self.k1]
            keep.append(own)
            means.append(self.supports[own].mean(0) if len(own) else self.head.weight[j].detach())
        rows = torch.cat(keep)
        self.supports, self.labels = self.supports[rows], self.labels[rows]
        self.entropies = self.entropies[rows]
        return torch.stack(means)

    def fill(self, z: Tensor, p: Tensor) -> None:
        self.supports, self.entropies = z, self.entropy(p)
        self.labels = F.one_hot(p.argmax(1), p.shape[1]).float()


def main() -> None:
    defaults = {"batch": 128, "classes": 1000, "features": 2048, "k1": 100, "rounds": 5}
    options = arguments(__doc__, **defaults).parse_args()
    B, C, d = options.batch, options.classes, options.features
    net = network(d, C)
    adapter = fretta.adapt(net, "g-fret", k1=options.k1)
    textbook = Textbook(net, options.k1)
    x = torch.randn(B, d)
    adapter.predict(x)
    fill(adapter, textbook, net, options.k1)
    before = [p.detach().clone() for p in adapter.model.parameters()]
    adapter(x), textbook(x)
    moved = zip(adapter.model.parameters(), textbook.net[0].parameters(), before, strict=True)
    apart = max(
        float((a - b).detach().abs().max() / (a - was).detach().abs().max()) for a, b, was in moved
    )

    z = net[1](x)
    head = net[2].requires_grad_(False)

    def head_alone() -> None:
        torch.autograd.grad(head(z.requires_grad_()).sum(), z)

    times: dict[str, list[float]] = {"head": [], "g-fret": [], "textbook": []}
    head_alone()
    for _ in range(options.rounds):
        x = torch.randn(B, d)
        # the two short ones several times for each long one
        for _ in range(5):
            times["head"].append(seconds(head_alone))
            times["g-fret"].append(seconds(adapter, x))
        times["textbook"].append(seconds(textbook, x))
    middle = {name: statistics.median(values) for name, values in times.items()}
    result = {
        "batch": B,
        "classes": C,
        "features": d,
        "k1": options.k1,
        "threads": torch.get_num_threads(),
        "milliseconds": {name: round(1000 * value, 2) for name, value in middle.items()},
        "textbook_over_gfret": round(middle["textbook"] / middle["g-fret"], 1),
        "gfret_over_head": round(middle["g-fret"] / middle["head"], 2),
        "largest_difference_of_an_update": apart,
    }
    print(json.dumps(result, indent=1))
    write(options.out, result)


def fill(adapter: fretta.Adapter, textbook: Textbook, net: nn.Sequential, k1: int) -> None:
    """K1 supports for every class, the same in both banks."""
    head = net[2].weight.detach()
    classes, d = head.shape
    supports = (head.repeat_interleave(k1, 0) * 20 + torch.randn(classes * k1, d)).relu_()
    logits = torch.cat([part @ head.T for part in supports.split(4096)])
    labels = torch.arange(classes).repeat_interleave(k1)
    logits[torch.arange(len(labels)), labels] += logits.amax(1)  # so the argmax is the label
    textbook.fill(supports, logits)
    bank = adapter.method.bank
    for part in torch.arange(len(labels)).split(4096):
        bank.add(supports[part], labels[part], textbook.entropies[part])


if __name__ == "__main__":
    main()
