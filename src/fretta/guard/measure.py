"""The numbers of a batch, from tensors its step produced anyway, with one transfer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..method import Method
from ..parts.features import flat as flat_features
from ..parts.losses import entropy
from ..parts.redundancy import redundancy


class FeatureTap:
    """Keeps a reference to what enters the head in the next forward after `arm`.

    The first forward of a step is the one whose logits are returned; further ones (SGLD samples,
    perturbed images) are let pass.
    """

    fretta = True  # how an export tells our hooks from the model's own

    def __init__(self, head: nn.Module) -> None:
        self.features: Tensor | None = None
        self._armed = False
        self._hook = head.register_forward_pre_hook(self._keep, with_kwargs=True)

    def arm(self) -> None:
        self.features, self._armed = None, True

    def _keep(self, _: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._armed:
            values = [*inputs, *kwargs.values()]
            if values and isinstance(values[0], Tensor):
                self.features, self._armed = values[0].detach(), False

    def remove(self) -> None:
        self._hook.remove()


@dataclass(frozen=True)
class Numbers:
    """What one batch says by itself."""

    samples: int
    finite: bool  # logits and adapted parameters
    entropy: float  # mean over the batch, nats
    mean: Tensor  # (C,) float64 on the CPU: the mean prediction
    nrs: float | None
    pass_rate: float | None
    drift: float | None
    update_norm: float | None

    @property
    def marginal_entropy(self) -> float:
        return entropy_of(self.mean)


def entropy_of(p: Tensor) -> float:
    """H(p) of one distribution, in nats; 0 · log 0 is 0."""
    return float(torch.special.entr(p).sum())


@torch.no_grad()
def measure(
    logits: Tensor,
    method: Method,
    *,
    features: Tensor | None = None,
    now: Tensor | None = None,
    before: Tensor | None = None,
    origin: Tensor | None = None,
) -> Numbers:
    """Everything in one tensor, brought to the CPU at once.

    now, before, origin   the adapted parameters in one vector: after this batch, before it, and
                          on the first day
    """
    logits = logits.detach().float()
    nothing = logits.new_full((), torch.nan)
    custom = type(method).pass_rate is not Method.pass_rate
    kept = None if custom else getattr(method, "kept", None)
    z = None if features is None else flat_features(features)
    z = None if z is None or z.dim() != 2 or not z.is_floating_point() else z.float()
    moved = nothing if now is None or before is None else (now - before).norm()
    drift = nothing if now is None or origin is None else _ratio(now - origin, origin)
    finite = logits.isfinite().all()
    if now is not None:
        finite = finite & now.isfinite().all()
    scalars = [
        finite,
        entropy(logits).mean(),
        nothing if z is None else redundancy(z, normalized=True),
        nothing if kept is None else kept.float().mean(),
        drift,
        moved,
    ]
    row = torch.cat([torch.stack([s.float() for s in scalars]), logits.softmax(1).mean(0)])
    values = row.cpu().double()
    ok, h, nrs, rate, far, step = values[:6].tolist()
    return Numbers(
        samples=len(logits),
        finite=bool(ok),
        entropy=h,
        mean=values[6:],
        nrs=None if z is None else nrs,
        pass_rate=method.pass_rate if custom else None if kept is None else rate,
        drift=None if drift is nothing else far,
        update_norm=None if moved is nothing else step,
    )


def _ratio(difference: Tensor, origin: Tensor) -> Tensor:
    smallest = torch.finfo(torch.float32).tiny
    return torch.div(difference.norm(), origin.norm().clamp(min=smallest))
