"""Prior correction: predictions that know how frequent the classes of their batch are.

Marsden, Döbler, Yang, "Universal test-time adaptation through weight ensembling, diversity
weighting, and prior correction", WACV 2024, https://arxiv.org/abs/2306.00650
"""

from __future__ import annotations

from torch import Tensor


def smoothed_prior(logits: Tensor) -> Tensor:
    """(C,): π = (π̂ + γ) / (1 + γ C), π̂ the mean prediction, γ = max(1/B, 1/C) / max π̂.

    A small batch, or a balanced one, gives a prior that is close to uniform.
    """
    batch, classes = logits.shape
    mean = logits.softmax(1).mean(0)
    gamma = max(1 / batch, 1 / classes) / mean.max()
    return (mean + gamma) / (1 + gamma * classes)


def with_prior(logits: Tensor) -> Tensor:
    """log σ(p) + log π: probabilities times the prior."""
    return logits.log_softmax(1) + smoothed_prior(logits).log()


def times_prior(logits: Tensor) -> Tensor:
    """p · π, as the released code has it: the logits themselves times the prior.

    The order of positive logits is as published, but they shrink to about ±1: confidence, entropy
    and calibration mean nothing any more, and negative logits are moved the wrong way.
    """
    return logits * smoothed_prior(logits)
