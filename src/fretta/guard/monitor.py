"""What a guard measures: the numbers of each batch, and averages over the last images."""

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

SHORT = 32  # images: `changed`, and the level of the adapted model


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


class Average:
    """The mean of rows over the last images; older ones count less and less."""

    def __init__(self, size: int) -> None:
        self.size = size  # images
        self.images = 0.0
        self.total: Tensor | None = None

    def add(self, n: int, mean: Tensor) -> None:
        past = math.exp(-n / self.size)
        old = torch.zeros_like(mean) if self.total is None else self.total
        self.total, self.images = past * old + n * mean, past * self.images + n

    def mean(self) -> Tensor | None:
        return None if self.total is None else self.total / self.images

    def clear(self) -> None:
        self.total, self.images = None, 0.0


class Monitor:
    """The adapted model over time: alone, and beside its references on the same images."""

    def __init__(self, guard: Guard, classes: int) -> None:
        self.unit = math.log(classes)
        self.own = Average(SHORT)  # the adapted model alone: [H, mean prediction]
        self.differs = Average(SHORT)  # share of predictions that are not the source model's
        # learned beside unlearned, rows of `pair_row`
        self.learning = Average(max(1, guard.window // 2))
        self.statistics = Average(guard.window)  # unlearned beside source

    def add_own(self, health: Health, mean: Tensor) -> None:
        self.own.add(health.samples, torch.cat([mean.new_tensor([health.entropy]), mean]))

    def add_changed(self, adapted: Tensor, source: Tensor) -> None:
        differ = (adapted.argmax(1) != source.argmax(1)).double().mean().cpu()
        self.differs.add(len(adapted), differ[None])

    def level(self) -> tuple[float, float] | None:
        """(entropy, marginal entropy) of the adapted model of late, in units of ln C."""
        row = self.own.mean()
        return None if row is None else (float(row[0]) / self.unit, entropy_of(row[1:]) / self.unit)

    @property
    def changed(self) -> float | None:
        row = self.differs.mean()
        return None if row is None else float(row[0])

    def state_dict(self) -> dict[str, Any]:
        averages = {n: a for n, a in vars(self).items() if isinstance(a, Average)}
        return {n: [a.images, a.total] for n, a in averages.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, (images, total) in state.items():
            average = getattr(self, name)
            average.images, average.total = images, None if total is None else total.cpu()


def add_pair(average: Average, model: Tensor, reference: Tensor) -> Comparison | None:
    """Take in the logits of both for the same images; how they compare of late."""
    row = pair_row(model, reference)
    if bool(row.isfinite().all()):
        average.add(len(model), row)
    total = average.mean()
    return None if total is None else compare_row(average.images, total)


def compare(model: Tensor, reference: Tensor) -> Comparison:
    """The two on one batch."""
    return compare_row(len(model), pair_row(model, reference))


@torch.no_grad()
def pair_row(model: Tensor, reference: Tensor) -> Tensor:
    """[gain, cost, cost², (gain - cost)², confidence of the reference, agreement, mean prediction
    of the model (C), of the reference (C)] on the CPU: one transfer."""
    p, q = model.detach().float().softmax(1), reference.detach().float().softmax(1)
    mine, theirs = p.argmax(1, keepdim=True), q.argmax(1, keepdim=True)
    confidence = q.gather(1, theirs)
    gain = p.gather(1, mine) - p.gather(1, theirs)
    cost = confidence - q.gather(1, mine)
    agree = (mine == theirs).float()
    columns = [gain, cost, cost.square(), (gain - cost).square(), confidence, agree]
    return torch.cat([torch.cat(columns, 1).mean(0), p.mean(0), q.mean(0)]).cpu().double()


def compare_row(images: float, row: Tensor) -> Comparison:
    classes = (len(row) - 6) // 2
    gain, cost, cost_square, net_square, confidence, agree = row[:6].tolist()
    mine, theirs = row[6 : 6 + classes], row[6 + classes :]
    chance = float(mine @ theirs)
    unit = math.log(classes)
    return Comparison(
        images=images,
        gain=gain,
        cost=cost,
        cost_error=_standard_error(cost, cost_square, images),
        net_error=_standard_error(gain - cost, net_square, images),
        unsure=1 - confidence,
        agreement=(agree - chance) / max(1 - chance, 1e-6),
        marginal=entropy_of(mine) / unit,
        reference_marginal=entropy_of(theirs) / unit,
    )


def _standard_error(mean: float, square: float, n: float) -> float:
    return math.sqrt((max(square - mean * mean, 0.0) + 1e-4) / n)
