"""Laplacian adjustment: predictions of a batch that agree where its embeddings are alike.

Boudiaf, Mueller, Ben Ayed, Bertinetto, "Parameter-free online test-time adaptation", CVPR 2022,
https://arxiv.org/abs/2201.05718
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from .losses import wide

Affinity = Literal["rbf", "knn", "linear"]
AFFINITIES = get_args(Affinity)


def affinity(z: Tensor, kind: Affinity = "rbf", k: int = 5) -> Tensor:
    """(B, B) w_ij, how alike two L2-normalized embeddings are.

    rbf      exp(-d² / 2s²), s the mean distance to the k-th nearest, itself the first
    knn      1 for the k nearest others, in one direction
    linear   the cosine, which may be negative
    """
    z = F.normalize(wide(z))
    if kind == "linear":
        return z @ z.T
    distance = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")  # exact for twins
    if kind == "rbf":
        s = distance.topk(min(k, len(z)), largest=False).values[:, -1].mean()
        # s = 0 for a batch of one, and where all have k twins: like is then only what is equal
        return (-distance.square() / (2 * s * s)).exp().where(s > 0, (distance == 0).to(z.dtype))
    distance.fill_diagonal_(torch.inf)
    nearest = distance.topk(min(k, len(z) - 1), largest=False).indices
    return torch.zeros_like(distance).scatter_(1, nearest, 1.0)


def adjusted(logits: Tensor, W: Tensor, iterations: int = 100) -> Tensor:
    """Logits whose softmax Y minimizes sum_i KL(y_i ‖ q_i) - sum_ij w_ij y_i·y_j, q = σ(p).

    The fixed point Y ← softmax(log q + W Y), from Y = q, until the bound on the energy changes
    by no more than 1e-8 of itself, but at least three times.
    """
    log_q = (wide(logits).softmax(1) + 1e-10).log()
    Y, old, exponent = log_q.softmax(1), torch.inf, log_q
    for iteration in range(iterations):
        together = W @ Y
        exponent = log_q + together
        Y = exponent.softmax(1)
        energy = float((Y * (Y.clamp(min=1e-20).log() - log_q - together)).sum())
        if iteration > 1 and abs(energy - old) <= 1e-8 * abs(old):
            break
        old = energy
    return exponent.to(logits.dtype)
