"""What a guard measures: the numbers of each batch, and windows over the last images."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..method import Method
from ..parts.features import flat_features
from ..parts.losses import entropy
from ..parts.redundancy import redundancy
from .guard import Guard
from .health import Health
from .judge import Comparison

SAMPLED = 32  # images over which `changed` is counted


def flat(tensors: Iterable[Tensor]) -> Tensor | None:
    """All values in one new vector; None without any tensor. Mixed dtypes are widened."""
    pieces = [tensor.detach().reshape(-1) for tensor in tensors]
    return torch.cat(pieces) if pieces else None


@torch.no_grad()
def measure(
    logits: Tensor,
    method: Method,
    batch: int,
    *,
    features: Tensor | None = None,
    now: Tensor | None = None,
    before: Tensor | None = None,
    origin: Tensor | None = None,
) -> tuple[Health, Tensor]:
    """Health of a batch, and its mean prediction (C,), both on the CPU after one transfer.

    now, before, origin   the adapted parameters in one vector: after this batch, before it, and
                          in the initial state
    """
    logits = logits.detach().float()
    z = None if features is None else flat_features(features)
    z = None if z is None or z.dim() != 2 or not z.is_floating_point() else z.float()
    optional = {
        "nrs": None if z is None else redundancy(z, normalized=True),
        "drift": None if now is None or origin is None else _relative(now - origin, origin),
        "update_norm": None if now is None or before is None else (now - before).norm(),
    }
    known = {name: value for name, value in optional.items() if value is not None}
    scalars = [entropy(logits).mean(), *(value.float() for value in known.values())]
    row = torch.cat([torch.stack(scalars), logits.softmax(1).mean(0)]).cpu().double()
    mean_entropy, *values = row[: len(scalars)].tolist()
    mean = row[len(scalars) :]
    numbers = {**dict.fromkeys(optional), **dict(zip(known, values, strict=True))}
    health = Health(
        batch=batch,
        samples=len(logits),
        entropy=mean_entropy,
        marginal_entropy=entropy_of(mean),
        reference_marginal=None,
        changed=None,
        pass_rate=method.pass_rate,
        **numbers,
    )
    return health, mean


def _relative(difference: Tensor, origin: Tensor) -> Tensor:
    smallest = torch.finfo(torch.float32).tiny
    return torch.div(difference.norm(), origin.norm().clamp(min=smallest))


def entropy_of(p: Tensor) -> float:
    """H(p) of one distribution, in nats; 0 · log 0 is 0."""
    return float(torch.special.entr(p).sum())


class Window:
    """The mean of rows over the last images, in entire batches."""

    def __init__(self, size: int) -> None:
        self.size = size  # images
        self.rows: list[tuple[int, Tensor]] = []

    @property
    def images(self) -> int:
        return sum(n for n, _ in self.rows)

    def add(self, n: int, mean: Tensor) -> None:
        self.rows.append((n, mean * n))
        while self.images - self.rows[0][0] >= self.size:
            self.rows.pop(0)

    def mean(self) -> Tensor:
        return torch.stack([row for _, row in self.rows]).sum(0) / self.images

    def comparison(self) -> Comparison:
        """Of rows made by `pair_row`."""
        return compare_row(self.images, self.mean())


class Monitor:
    """Predictions of the adapted model over time, alone and beside the source model's."""

    def __init__(self, guard: Guard, classes: int) -> None:
        self.unit = math.log(classes)
        self.own = Window(guard.window // 2)  # the adapted model alone: [H, mean prediction]
        self.sampled = Window(SAMPLED)  # beside the source model, mostly on a few images a batch
        self.past = Window(2 * guard.window)  # the same over a longer time
        self.compared = Window(guard.window)  # beside the source model, on entire batches

    def add_own(self, health: Health, mean: Tensor) -> None:
        self.own.add(health.samples, torch.cat([mean.new_tensor([health.entropy]), mean]))

    def add_pair(self, adapted: Tensor, source: Tensor, entire: bool) -> None:
        """Logits of both models for the same images; `entire`: of all images of a batch."""
        row = pair_row(adapted, source)
        if bool(row.isfinite().all()):
            for window in (self.sampled, self.past, self.compared)[: 3 if entire else 2]:
                window.add(len(adapted), row)

    def level(self) -> tuple[float, float]:
        """(entropy, marginal entropy) of the adapted model of late, in units of ln C."""
        row = self.own.mean()
        return float(row[0]) / self.unit, entropy_of(row[1:]) / self.unit

    @property
    def changed(self) -> float | None:
        return self.sampled.comparison().changed if self.sampled.rows else None

    def state_dict(self) -> dict[str, Any]:
        windows = {n: w for n, w in vars(self).items() if isinstance(w, Window)}
        return {n: [w.size, [[k, row] for k, row in w.rows]] for n, w in windows.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, (size, rows) in state.items():
            window = getattr(self, name)
            window.size, window.rows = size, [(n, row.cpu()) for n, row in rows]


@torch.no_grad()
def pair_row(adapted: Tensor, source: Tensor) -> Tensor:
    """[H_A, H_S, agreement, mean prediction of A (C), of S (C)] on the CPU: one transfer."""
    a, s = adapted.detach().float(), source.detach().float()
    agree = (a.argmax(1) == s.argmax(1)).float().mean()
    head = torch.stack([entropy(a).mean(), entropy(s).mean(), agree])
    return torch.cat([head, a.softmax(1).mean(0), s.softmax(1).mean(0)]).cpu().double()


def compare_row(images: int, row: Tensor) -> Comparison:
    classes = (len(row) - 3) // 2
    unit = math.log(classes)
    adapted, source, agree = row[:3].tolist()
    return Comparison(
        images=images,
        entropy=adapted / unit,
        source_entropy=source / unit,
        changed=1 - agree,
        marginal=entropy_of(row[3 : 3 + classes]) / unit,
        source_marginal=entropy_of(row[3 + classes :]) / unit,
    )


def compare(adapted: Tensor, source: Tensor) -> Comparison:
    """The two models on one batch."""
    return compare_row(len(adapted), pair_row(adapted, source))
