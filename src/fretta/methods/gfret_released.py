"""G-FRET as its released code computes it, with a mask M, and the ablations of the paper.

The released code differs from the equations in eight places. Each is a field that can be set by
itself; `variant="released"` sets them all, and an explicit value wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import ConfigError
from ..method import AUTO, GradientMethod
from ..parts.classifier import Classifier
from ..parts.losses import cross_entropy, entropy, kl_divergence, masked_mean, wide
from ..parts.optim import descend, none_kept
from ..parts.redundancy import split_representations
from ..parts.supports import add_batch

if TYPE_CHECKING:
    from .gfret import GFRET

# field: (what the paper says, what the released code does)
CHOICES = {
    "graph": ("raw", "unit"),  # G_F = ZᵀZ, or the Gram matrix of the unit columns Z̃
    "centers": ("mean", "sum"),  # mean of raw supports | sum of unit supports and head rows
    "selection": ("count", "quantile"),  # K2: so many samples | below that quantile of H(σ(p))
    "similarity": ("cosine", "l1"),  # to the centers, for ŷ: cosine | product of L1-unit vectors
    "filters": ("both", "prediction"),  # which losses see only the kept samples
    "entropy_of": ("logits", "softmax"),  # H(P_A) | H(σ(p)), a softmax of a softmax
    "negative": ("cross", "kl"),  # -sum σ(P_R) log σ(1 - P_A) | KL(σ(1 - s) ‖ σ(σ(P_R)))
    "redundant_gradient": (True, False),  # whether L_P also moves P_R
}


@dataclass
class Switches(GradientMethod):
    """What leads away from the paper's form.

    Parts of the loss, on or off, as in the paper's ablation:

    l_r_a     L_R(A): R_A against the centers of the other classes
    l_r_r     L_R(R): R_A against the redundant representation R_R
    l_p_a     L_P(A): entropy of the prediction from R_A
    l_p_r     L_P(R): negative learning from the prediction from R_R

    Where the released code computes something else than the paper, one by one; None is as the
    variant says:

    graph                feature graph G_F of Z as it is ("raw") or of its unit columns ("unit")
    centers              c_j: "mean" of the supports, or "sum" of unit supports and the head's row
    selection            K2 as a "count" of samples, or as a "quantile" of their entropy
    similarity           to the centers, for ŷ: "cosine", or the product of "l1"-unit vectors
    filters              the selection holds for "both" losses, or for the "prediction" loss
    entropy_of           entropy of the "logits", or of the "softmax" of the softmax
    negative             "cross": cross-entropy of P_R to 1 - P_A; "kl": a KL divergence
    redundant_gradient   whether L_P also moves P_R
    """

    l_r_a: bool = True
    l_r_r: bool = True
    l_p_a: bool = True
    l_p_r: bool = True
    graph: str = AUTO
    centers: str = AUTO
    selection: str = AUTO
    similarity: str = AUTO
    filters: str = AUTO
    entropy_of: str = AUTO
    negative: str = AUTO
    redundant_gradient: bool = AUTO

    def check(self) -> None:
        super().check()
        for name, options in CHOICES.items():
            if getattr(self, name) not in (*options, None):
                raise ConfigError(
                    f"g-fret: {name}={getattr(self, name)!r} is unknown; choose {options[0]!r} or"
                    f" {options[1]!r}"
                )
        if not (self.l_r_a or self.l_r_r or self.l_p_a or self.l_p_r):
            raise ConfigError(
                "g-fret: all four parts of the loss are off; leave one on, or use 'bn'"
            )

    def switched(self) -> bool:
        """Whether anything differs from the paper's form."""
        complete = self.l_r_a and self.l_r_r and self.l_p_a and self.l_p_r
        return not complete or any(getattr(self, n) != paper for n, (paper, _) in CHOICES.items())


def switched_step(method: GFRET, model: Classifier, x: Tensor) -> Tensor:
    """GFRET.step with every switch looked at."""
    z, p = model.features(x)
    R_A, R_R = split_representations(z, method.M, unit=method.graph == "unit")
    P_A = p if method.M is None else model.head(R_A)
    c = _centers(method, model, z.detach(), p.detach())
    cosine = F.normalize(R_A) @ F.normalize(c).T
    l1 = method.similarity == "l1"
    s = F.normalize(z, p=1) @ F.normalize(c, p=1).T if l1 else cosine

    kept = method.kept = _reliable(method, p.detach(), s.detach())
    kept_R = kept if method.filters == "both" else torch.ones_like(kept)
    used = kept_R if method.l_r_a or method.l_r_r else kept
    if none_kept(used):
        return p
    loss = z.new_zeros(())
    if method.l_r_a or method.l_r_r:
        loss = loss + masked_mean(_representation_loss(method, R_A, R_R, cosine, p), kept_R)
    if method.l_p_a or method.l_p_r:
        L_P = _prediction_loss(method, model, p, P_A, R_R, s)
        loss = loss + method.lam * masked_mean(L_P, kept)
    descend(method.opt, loss, wanted=used.any())
    return p


def _centers(method: GFRET, model: Classifier, z: Tensor, p: Tensor) -> Tensor:
    if method.centers == "mean":
        return method.class_centers(model, z, p)
    add_batch(method.bank, F.normalize(z), p)
    return method.bank.sums()


def _reliable(method: GFRET, p: Tensor, s: Tensor) -> Tensor:
    if method.selection == "count":
        return method.reliable(p, s)
    H = entropy(wide(p).softmax(1))  # quantiles are of float32 or float64
    return (p.argmax(1) == s.argmax(1)) & (H <= H.quantile(method.k2))


def _representation_loss(
    method: GFRET, R_A: Tensor, R_R: Tensor, cosine: Tensor, p: Tensor
) -> Tensor:
    o = p.detach().argmax(1)
    if not method.l_r_a:  # the redundant representation is the only negative
        cosine, o = cosine.gather(1, o[:, None]), torch.zeros_like(o)
    if method.l_r_r:
        cosine = torch.cat([cosine, F.cosine_similarity(R_A, R_R, dim=1)[:, None]], 1)
    return F.cross_entropy(cosine, o, reduction="none")


def _prediction_loss(
    method: GFRET, model: Classifier, p: Tensor, P_A: Tensor, R_R: Tensor, s: Tensor
) -> Tensor:
    loss = p.new_zeros(len(p))
    if method.l_p_a:
        loss = loss + (entropy(P_A) if method.entropy_of == "logits" else entropy(p.softmax(1)))
    if method.l_p_r:
        P_R = model.head(R_R if method.redundant_gradient else R_R.detach())
        if method.negative == "cross":
            loss = loss + cross_entropy(P_R.softmax(1), 1 - P_A)
        else:
            loss = loss + kl_divergence(1 - s, P_R.softmax(1))
    return loss
