"""What a guard measures: the numbers of each batch, and windows over the last images."""

from __future__ import annotations

import math
from collections import deque
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

    def __init__(self, images: int) -> None:
        self.size = images
        self.images = 0
        self.rows: deque[tuple[int, Tensor]] = deque()

    def add(self, n: int, mean: Tensor) -> None:
        self.rows.append((n, mean * n))
        self.images += n
        while self.images - self.rows[0][0] >= self.size:
            self.images -= self.rows.popleft()[0]

    def mean(self) -> Tensor:
        return torch.stack([row for _, row in self.rows]).sum(0) / max(self.images, 1)

    def clear(self) -> None:
        self.rows.clear()
        self.images = 0

    def state_dict(self) -> dict[str, Any]:
        return {"size": self.size, "rows": [[n, row.clone()] for n, row in self.rows]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.size = state["size"]
        self.rows = deque((n, row.cpu().clone()) for n, row in state["rows"])
        self.images = sum(n for n, _ in self.rows)


class Monitor:
    """Predictions of the adapted model over time, alone and beside the source model's.

    A row of `own` is [H, mean prediction (C)], a row of the others [H_A, H_S, agreement, mean
    prediction of the adapted model (C), of the source model (C)].
    """

    WINDOWS = ("own", "sampled", "past", "compared")

    def __init__(self, guard: Guard, classes: int) -> None:
        self.unit = math.log(classes)
        self.own = Window(guard.window // 2)  # the adapted model alone
        self.sampled = Window(SAMPLED)  # beside the source model, mostly on a few images a batch
        self.past = Window(2 * guard.window)  # the same over a longer time
        self.compared = Window(guard.window)  # beside the source model, on entire batches

    def add_own(self, health: Health, mean: Tensor) -> None:
        first = torch.tensor([health.entropy], dtype=torch.float64)
        self.own.add(health.samples, torch.cat([first, mean]))

    def add_pair(self, adapted: Tensor, source: Tensor, entire: bool) -> None:
        """Logits of both models for the same images; `entire`: of all images of a batch."""
        row = pair_row(adapted, source)
        if bool(row.isfinite().all()):
            windows = (self.sampled, self.past, self.compared)[: 3 if entire else 2]
            for window in windows:
                window.add(len(adapted), row)

    def level(self) -> tuple[float, float]:
        """(entropy, marginal entropy) of the adapted model of late, in units of ln C."""
        row = self.own.mean()
        return float(row[0]) / self.unit, entropy_of(row[1:]) / self.unit

    def comparison(self, window: Window) -> Comparison:
        return compare_row(window.images, window.mean())

    @property
    def changed(self) -> float | None:
        return self.comparison(self.sampled).changed if self.sampled.images else None

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name).state_dict() for name in self.WINDOWS}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self.WINDOWS:
            getattr(self, name).load_state_dict(state[name])


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
