"""Feature redundancy and the feature relation graph, in exact forms that avoid d×d matrices.

Z is (B, d): B embeddings of d features. The feature relation graph is G_F = ZᵀZ, or the Gram
matrix of Z̃, whose columns have unit length. Everything below needs the graph only through its
degrees (row sums of |G|) and through products with it, and both are cheap:

    degrees   sum_k |G_jk| - |G_jj|  =  Zᵀ(Z1) - colsumsq        for Z >= 0 (after a ReLU)
    product   A G_R                  =  (A Zᵀ) Z - A ∘ colsumsq   O(B²d)

For signed Z (a ViT) the absolute values need the Gram matrix itself, which is visited in chunks
of rows and never kept.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from ..errors import InputError

_CHUNK = 1024  # rows of the Gram matrix held at a time: 1024 × 2048 floats are 8 MB


def redundancy(z: Tensor, normalized: bool = False) -> Tensor:
    """R_e = sum_{i≠j} |Z̃ᵀZ̃|_ij (eq. 1), or with `normalized` the score R_e / (d(d-1)) in [0, 1].

    A feature that is zero over the whole batch contributes 0. Differentiable.
    """
    if z.dim() != 2 or not z.is_floating_point():
        raise InputError(
            f"redundancy needs a floating-point (B, d) matrix of embeddings, got {z.dtype} of shape"
            f" {tuple(z.shape)}; flatten everything but the batch: z.flatten(1)"
        )
    d = z.shape[1]
    score = degrees(unit_columns(z)).sum()
    return (score / max(d * (d - 1), 1)).clamp(max=1) if normalized else score


def unit_columns(z: Tensor) -> Tensor:
    """Z̃: every column divided by its L2 norm over the batch; zero columns stay zero."""
    # Divide by the largest value first: squares of very large or small features leave the range
    # of floats. Z̃ does not depend on the scale of a column, nor does its gradient.
    largest = z.detach().abs().amax(0)
    z = z / torch.where(largest > 0, largest, 1)
    return z * _inverse_sqrt(z.square().sum(0))


def degrees(z: Tensor) -> Tensor:
    """Row sums of |ZᵀZ| without its diagonal: how much each feature shares with all others.

    Two features of Z >= 0 that never meet in a batch have G_ij = 0, where |G_ij| has a kink; the
    gradient here is the one-sided one, since their product can only grow.
    """
    if bool((z >= 0).all()):
        return z.T @ z.sum(1) - z.square().sum(0)
    return cast(Tensor, _SignedDegrees.apply(z))  # type: ignore[no-untyped-call]


class _SignedDegrees(torch.autograd.Function):
    """D_j = sum_{k≠j} |(ZᵀZ)_jk| for signed Z, holding only a block of rows of ZᵀZ at a time."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        ctx.save_for_backward(z)
        return torch.cat([block.abs_().sum(1) for _, block in _off_diagonal_rows(z)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        # With S = sign(G) off the diagonal and L = sum_j g_j D_j:  dL/dZ = (Z∘g) S + (Z S)∘g
        (z,), (g,) = ctx.saved_tensors, gradients
        result = torch.empty_like(z)
        for rows, block in _off_diagonal_rows(z):
            signs = block.sign_().T
            result[:, rows] = (z * g) @ signs + (z @ signs) * g[rows]
        return result


def _off_diagonal_rows(z: Tensor) -> Any:
    d = z.shape[1]
    for start in range(0, d, _CHUNK):
        rows = slice(start, min(start + _CHUNK, d))
        block = z[:, rows].T @ z
        block.diagonal(offset=start).zero_()
        yield rows, block


def _inverse_sqrt(values: Tensor, floor: Tensor | float = 0.0) -> Tensor:
    """values^(-1/2), and 0 (with gradient 0) where a value is not above the floor."""
    live = values > floor
    return torch.where(live, torch.where(live, values, 1).rsqrt(), 0)


# ---- the two graphs of G-FRET ------------------------------------------------------------------


def split_representations(
    z: Tensor, mask: Tensor | None = None, unit: bool = False
) -> tuple[Tensor, Tensor]:
    """R_A = Z N(G_A) and R_R = Z N(G_R) (eqs. 4 and 5), with N(G) = D^(-1/2) G D^(-1/2).

    The mask M splits the graph (eq. 3): G_A = G_F ∘ M, G_R = G_F - G_A. None means M = I, for
    which N(G_A) = I and so R_A = Z. `unit` builds the graph from Z̃ instead of Z.
    """
    columns = unit_columns(z) if unit else z
    if mask is not None:
        graph = columns.T @ columns
        attention = graph * mask
        return _propagate(z, attention), _propagate(z, graph - attention)
    return z, _redundant(z, columns)


def _propagate(z: Tensor, graph: Tensor) -> Tensor:
    """Z D^(-1/2) G D^(-1/2), written out with the d×d graph."""
    s = _inverse_sqrt(graph.abs().sum(1))
    return ((z * s) @ graph) * s


def _redundant(z: Tensor, columns: Tensor) -> Tensor:
    """R_R for M = I, O(B²d): (Z∘s) G_R ∘ s with G_R = columnsᵀ columns - its diagonal."""
    diagonal = columns.square().sum(0)
    degree = degrees(columns)
    # The degree of a feature that shares nothing is a difference of equal numbers: rounding noise.
    noise = 32 * torch.finfo(z.dtype).eps * (degree.detach() + 2 * diagonal.detach())
    s = _inverse_sqrt(degree, noise)
    scaled = z * s
    return ((scaled @ columns.T) @ columns - scaled * diagonal) * s
