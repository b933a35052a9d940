"""Losses on predictions: (N, C) in, one number per sample (N,) out."""

from __future__ import annotations

import torch
from torch import Tensor


def wide(values: Tensor) -> Tensor:
    """In float32 at least: half precision knows neither 1e-10 nor 1e5."""
    return values if values.dtype == torch.float64 else values.float()


def log_softmax(logits: Tensor) -> Tensor:
    """log σ(p), finite also for a class that cannot be, whose logit is -inf: 0 · -inf is NaN."""
    log_p = logits.log_softmax(1)
    return log_p.clamp(min=torch.finfo(log_p.dtype).min)


def entropy(logits: Tensor) -> Tensor:
    """H(p) = -sum_c σ(p)_c log σ(p)_c, in nats."""
    log_p = log_softmax(logits)
    return -(log_p.exp() * log_p).sum(1)


def cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    """-sum_c t_c log σ(p)_c for target probabilities t."""
    return -(target * log_softmax(logits)).sum(1)


def kl_divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(σ(p) ‖ σ(q)) = sum_c σ(p)_c (log σ(p)_c - log σ(q)_c), both given as logits."""
    log_p = log_softmax(p)
    return (log_p.exp() * (log_p - log_softmax(q))).sum(1)


def energy(logits: Tensor) -> Tensor:
    """E(x) = -log sum_c exp p_c: low where the model finds the input likely."""
    return -logits.logsumexp(1)


def masked_mean(values: Tensor, kept: Tensor) -> Tensor:
    """Mean of the kept values, 0 (with a zero gradient) when none is kept."""
    weights = kept.to(values.dtype)
    # where() rather than a product: a filtered value may be inf, and 0 * inf is nan
    return values.where(kept, 0).sum() / weights.sum().clamp(min=1)


def marginal_entropy(logits: Tensor, epsilon: float = 0.0) -> Tensor:
    """H(q̄) of the mean prediction q̄ = mean_i σ(p_i): one number for the batch, (N, C) -> ().

    Published codes write log(q̄ + ε), against a class that nothing predicts.
    """
    mean = logits.softmax(1).mean(0)
    if epsilon:
        return -(mean * (mean + epsilon).log()).sum()
    return -torch.xlogy(mean, mean).sum()


def soft_likelihood_ratio(logits: Tensor, clip: float = 0.99) -> Tensor:
    """-sum_c q_c log(q_c / (1 - q_c)), q = min(σ(p), clip): no reward for more certainty."""
    q = logits.softmax(1).clamp(max=clip)
    return -(q * (q / (1 - q) + 1e-5).log()).sum(1)


def symmetric_cross_entropy(p: Tensor, q: Tensor) -> Tensor:
    """Half of each: -½ sum_c σ(q)_c log σ(p)_c - ½ sum_c σ(p)_c log σ(q)_c, both as logits."""
    return 0.5 * (cross_entropy(q.softmax(1), p) + cross_entropy(p.softmax(1), q))
