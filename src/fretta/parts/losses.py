"""Losses on predictions: (N, C) in, one number per sample (N,) out."""

from __future__ import annotations

from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """H(p) = -sum_c σ(p)_c log σ(p)_c, in nats."""
    log_p = logits.log_softmax(1)
    return -(log_p.exp() * log_p).sum(1)


def cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    """-sum_c t_c log σ(p)_c for target probabilities t."""
    return -(target * logits.log_softmax(1)).sum(1)


def kl_divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(σ(p) ‖ σ(q)) = sum_c σ(p)_c (log σ(p)_c - log σ(q)_c), both given as logits."""
    log_p = p.log_softmax(1)
    return (log_p.exp() * (log_p - q.log_softmax(1))).sum(1)


def energy(logits: Tensor) -> Tensor:
    """E(x) = -log sum_c exp p_c: low where the model finds the input likely."""
    return -logits.logsumexp(1)


def masked_mean(values: Tensor, kept: Tensor) -> Tensor:
    """Mean of the kept values, 0 (with a zero gradient) when none is kept."""
    weights = kept.to(values.dtype)
    # where() rather than a product: a filtered value may be inf, and 0 * inf is nan
    return values.where(kept, 0).sum() / weights.sum().clamp(min=1)
