"""Optimizers over the adapted parameters, one update, and the sharpness-aware ascent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer

from ..errors import ModelError, warn

OptimizerName = Literal["adam", "sgd"]
OPTIMIZERS = get_args(OptimizerName)


UNREACHED = (
    "the adapted parameters do not reach the output of the model in this forward; there is nothing"
    " to learn: are its norm layers used, and the layers behind them not quantized?"
)


def build_optimizer(
    name: str, parameters: Iterable[Tensor], lr: float, momentum: float
) -> Optimizer:
    """Momentum is SGD's, or β1 of Adam (whose β2 is 0.999).

    Scales and shifts are many small tensors: one fused kernel over all of them takes a fifth of
    the time of a loop (benchmarks/steps.py).
    """
    parameters = list(parameters)
    fused = all(p.device.type in ("cpu", "cuda") for p in parameters)
    if name == "adam":
        return Adam(parameters, lr=lr, betas=(momentum, 0.999), fused=fused)
    return SGD(parameters, lr=lr, momentum=momentum, fused=fused)


def none_kept(kept: Tensor) -> bool:
    """Whether no sample is kept, where that is known without waiting.

    A CPU knows, and the backward can be left out. An accelerator would have to finish the forward
    first: there the step goes on and `descend(..., wanted=kept.any())` decides on the device.
    """
    return not _asynchronous(kept) and not bool(kept.any())


def _asynchronous(tensor: Tensor) -> bool:
    return tensor.device.type != "cpu"


def descend(
    optimizer: Optimizer,
    loss: Tensor,
    before_step: Callable[[], None] | None = None,
    wanted: Tensor | None = None,
) -> bool:
    """Backward and step; nothing moves if a gradient is not finite. Whether it moved.

    One NaN in a gradient would make every later prediction NaN: better to lose one update.
    """
    gradients: list[Tensor] = []
    if loss.requires_grad:
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        parameters = [p for g in optimizer.param_groups for p in g["params"]]
        gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        raise ModelError(UNREACHED)
    finite = torch.stack(torch._foreach_norm(gradients)).sum().isfinite()
    go = finite if wanted is None else finite & wanted
    if before_step is not None:
        before_step()
    if _asynchronous(loss) and isinstance(optimizer, Adam) and optimizer.defaults["fused"]:
        # the fused kernel reads the decision on the device: nobody waits before it is launched
        optimizer.found_inf = (~go).float()  # type: ignore[attr-defined]
        optimizer.step()
        del optimizer.found_inf  # type: ignore[attr-defined]
        moved = bool(go)
    else:
        moved = bool(go)
        if moved:
            optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if not moved and not finite:
        warn(
            "an update was left out: its gradient is not finite (overflow in the model or the loss)"
        )
    return moved


def gradients_by(tensors: list[Tensor], loss: Tensor) -> tuple[Tensor, ...]:
    """∇ loss by each, None where it does not depend on one; a ModelError if on none."""
    found: tuple[Tensor, ...] = ()
    if loss.requires_grad:
        found = torch.autograd.grad(loss, tensors, allow_unused=True)
    if all(gradient is None for gradient in found):
        raise ModelError(UNREACHED)
    return found


@contextmanager
def ascended(parameters: list[Tensor], loss: Tensor, rho: float) -> Iterator[Callable[[], None]]:
    """Inside, the parameters stand rho up the gradient: θ + ρ ∇L / ‖∇L‖ (SAM, Foret et al. 2021).

    Yields what puts them back exactly where they stood; it is called on the way out, also by an
    exception, unless it was called before.
    """
    gradients = gradients_by(parameters, loss)
    pairs = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
    before = [p.detach().clone() for p, _ in pairs]
    with torch.no_grad():
        norm = torch.stack(torch._foreach_norm([g for _, g in pairs])).norm()
        scaled = torch._foreach_mul([g for _, g in pairs], rho / (norm + 1e-12))
        torch._foreach_add_([p for p, _ in pairs], scaled)
    up = True

    def put_back() -> None:
        nonlocal up
        if up:
            up = False
            with torch.no_grad():
                for (p, _), saved in zip(pairs, before, strict=True):
                    p.copy_(saved)

    try:
        yield put_back
    finally:
        put_back()
