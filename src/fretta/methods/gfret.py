"""G-FRET: feature redundancy elimination for test time adaptation, the graph form.

You, Lu, Huang, Nie, "FRET: Feature Redundancy Elimination for Test Time Adaptation", ICCV 2025.
Equation numbers are the paper's. Where its released code computes something else, a field names
the choice; `variant` sets all of them at once and an explicit value wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import ConfigError
from ..method import AUTO, GradientMethod, Need
from ..parts.classifier import Classifier
from ..parts.losses import cross_entropy, entropy, kl_divergence, mean_of
from ..parts.optim import nothing, update
from ..parts.prototypes import add_batch, bank_of_head
from ..parts.redundancy import split_representations
from ..parts.supports import SupportBank

# field: (what the paper says, what the released code does)
CHOICES = {
    "graph": ("raw", "unit"),  # G_F = ZᵀZ, or the Gram matrix of the unit columns Z̃
    "centres": ("mean", "sum"),  # mean of raw supports | sum of unit supports and head rows
    "selection": ("count", "quantile"),  # K2: so many samples | below that quantile of H(σ(p))
    "similarity": ("cosine", "l1"),  # to the centres, for ŷ: cosine | product of L1-unit vectors
    "filters": ("both", "prediction"),  # which losses see only the kept samples
    "entropy_of": ("logits", "softmax"),  # H(P_A) | H(σ(p)), a softmax of a softmax
    "negative": ("cross", "kl"),  # -sum σ(P_R) log σ(1 - P_A) | KL(σ(1 - s) ‖ σ(σ(P_R)))
    "redundant_gradient": (True, False),  # whether L_P also moves P_R
}


@dataclass
class GFRET(GradientMethod):
    """Separate what features say by themselves from what they repeat; leave the latter behind.

    lr        learning rate
    variant   "paper" follows the equations, "released" the published code
    lam       λ: weight of the prediction loss L_P beside the representation loss L_R
    k1        K1: supports kept per class, whose mean is the class center c_j
    k2        K2: share of the batch that is learned from, by lowest entropy
    mask      M: the entries of the feature graph that are not redundant, a symmetric (d, d)
              matrix; None is the identity: what a feature says by itself

    Parts of the loss, on or off, as in the paper's ablation:

    l_r_a     L_R(A): R_A against the centers of the other classes
    l_r_r     L_R(R): R_A against the redundant representation R_R
    l_p_a     L_P(A): entropy of the prediction from R_A
    l_p_r     L_P(R): negative learning from the prediction from R_R

    Where the released code computes something else than the paper, one by one; None is as the
    variant says:

    graph                feature graph G_F of Z as it is ("raw") or of its unit columns ("unit")
    centres              c_j: "mean" of the supports, or "sum" of unit supports and the head's row
    selection            K2 as a "count" of samples, or as a "quantile" of their entropy
    similarity           to the centers, for ŷ: "cosine", or the product of "l1"-unit vectors
    filters              the selection holds for "both" losses, or for the "prediction" loss
    entropy_of           entropy of the "logits", or of the "softmax" of the softmax
    negative             "cross": cross-entropy of P_R to 1 - P_A; "kl": a KL divergence
    redundant_gradient   whether L_P also moves P_R

    optimizer, momentum: see GradientMethod.
    """

    key = "g-fret"
    summary = "contrast features with their redundant part"
    needs = frozenset({Need.NORM, Need.HEAD})
    variants = ("paper", "released")

    lr: float = 1e-4
    variant: str = "paper"
    lam: float = AUTO
    k1: int = 100
    k2: float = 0.95
    mask: Any = None
    l_r_a: bool = True
    l_r_r: bool = True
    l_p_a: bool = True
    l_p_r: bool = True
    # see CHOICES
    graph: str = AUTO
    centres: str = AUTO
    selection: str = AUTO
    similarity: str = AUTO
    filters: str = AUTO
    entropy_of: str = AUTO
    negative: str = AUTO
    redundant_gradient: bool = AUTO

    def implied(self, classes: int) -> Mapping[str, Any]:
        column = self.variants.index(self.variant)
        # λ of the paper is tuned per task; 0.01 is measured (benchmarks/lam.py): L_P(R) as written
        # in eq. 8 pulls predictions away from the right class, so larger values lose accuracy.
        return {"lam": (0.01, 100.0)[column], **{k: v[column] for k, v in CHOICES.items()}}

    def check(self) -> None:
        super().check()
        for name, options in CHOICES.items():
            if getattr(self, name) not in (*options, None):
                raise ConfigError(
                    f"g-fret: {name}={getattr(self, name)!r} is unknown; choose {options[0]!r} or"
                    f" {options[1]!r}"
                )
        if self.k1 < 1 or not 0 < self.k2 <= 1:
            raise ConfigError(
                f"g-fret: k1={self.k1!r}, k2={self.k2!r} cannot work; give k1 >= 1 and k2 in (0, 1]"
            )
        if not (self.l_r_a or self.l_r_r or self.l_p_a or self.l_p_r):
            raise ConfigError(
                "g-fret: all four parts of the loss are off; leave one on, or use 'bn'"
            )

    def configure(self, model: Classifier) -> None:
        super().configure(model)
        model.thaw_norm()

    def start(self, model: Classifier) -> None:
        weight = model.head_weight()
        self.descent = self.new_optimizer(model)
        self.M = self._mask(weight)
        self.kept: Tensor | None = None
        self.bank = (
            bank_of_head(model, self.k1)
            if self.centres == "sum"
            else SupportBank(len(weight), self.k1, like=weight)
        )

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        z, p = model.features(x)
        # eqs. 3-5: split the feature graph. With M = I, R_A = Z and P_A = p exactly.
        R_A, R_R = split_representations(z, self.M, unit=self.graph == "unit")
        P_A = p if self.M is None else model.head(R_A)
        c = self._centres(model, z.detach(), p.detach())
        cosine = F.normalize(R_A) @ F.normalize(c).T  # sim(R_A, c_j)
        s = cosine if self.similarity == "cosine" else F.normalize(z, p=1) @ F.normalize(c, p=1).T

        kept = self.kept = self._reliable(p.detach(), s.detach())
        kept_R = kept if self.filters == "both" else torch.ones_like(kept)
        used = kept_R if self.l_r_a or self.l_r_r else kept
        if nothing(used):  # with nothing to learn from, not even momentum may move the model
            return p
        loss = z.new_zeros(())
        if self.l_r_a or self.l_r_r:
            loss = loss + mean_of(self._representation_loss(R_A, R_R, cosine, p), kept_R)
        if self.l_p_a or self.l_p_r:
            loss = loss + self.lam * mean_of(self._prediction_loss(model, p, P_A, R_R, s), kept)
        update(self.descent, loss, wanted=used.any())  # L = L_R + λ L_P   (eq. 9)
        return p

    def _centres(self, model: Classifier, z: Tensor, p: Tensor) -> Tensor:
        """c_j (eq. 7) over the K1 most confident embeddings of each class in the whole stream."""
        if self.centres == "sum":
            add_batch(self.bank, F.normalize(z), p)
            return self.bank.sums()
        add_batch(self.bank, z, p)
        return self.bank.means(fallback=model.head_weight())

    def _reliable(self, p: Tensor, s: Tensor) -> Tensor:
        """The K2 share of lowest entropy (supplement), where argmax p = argmax ŷ, ŷ = σ(s)."""
        agree = p.argmax(1) == s.argmax(1)
        if self.selection == "quantile":
            H = entropy(p.softmax(1))
            return agree & (H <= H.quantile(self.k2))
        count = max(1, int(self.k2 * len(p) + 1e-9))  # 0.29 · 100 is 28.999… in floating point
        lowest = entropy(p).topk(count, largest=False).indices
        return agree & torch.zeros_like(agree).index_fill(0, lowest, True)

    def _representation_loss(self, R_A: Tensor, R_R: Tensor, cosine: Tensor, p: Tensor) -> Tensor:
        """L_R (eq. 6): a (C+1)-way cross-entropy on the cosines of R_A to [c_1 … c_C, R_R]."""
        o = p.detach().argmax(1)
        if not self.l_r_r:
            return F.cross_entropy(cosine, o, reduction="none")
        redundant = F.cosine_similarity(R_A, R_R, dim=1)[:, None]
        if not self.l_r_a:  # the redundant representation is the only negative
            own = cosine.gather(1, o[:, None])
            return F.cross_entropy(
                torch.cat([own, redundant], 1), torch.zeros_like(o), reduction="none"
            )
        return F.cross_entropy(torch.cat([cosine, redundant], 1), o, reduction="none")

    def _prediction_loss(
        self, model: Classifier, p: Tensor, P_A: Tensor, R_R: Tensor, s: Tensor
    ) -> Tensor:
        """L_P (eq. 8): the entropy of P_A, and negative learning from P_R."""
        loss = p.new_zeros(len(p))
        if self.l_p_a:
            loss = loss + (entropy(P_A) if self.entropy_of == "logits" else entropy(p.softmax(1)))
        if self.l_p_r:
            P_R = model.head(R_R if self.redundant_gradient else R_R.detach())
            if self.negative == "cross":
                loss = loss + cross_entropy(P_R.softmax(1), 1 - P_A)  # -sum σ(P_R) log σ(1 - P_A)
            else:
                loss = loss + kl_divergence(1 - s, P_R.softmax(1))
        return loss

    def _mask(self, weight: Tensor) -> Tensor | None:
        if self.mask is None:
            return None
        M = torch.as_tensor(self.mask, dtype=weight.dtype, device=weight.device)
        d = weight.shape[1]
        if M.shape != (d, d) or not torch.equal(M, M.T):
            raise ConfigError(
                f"g-fret: mask has shape {tuple(M.shape)}; the model has {d} features and needs a"
                f" symmetric ({d}, {d}) matrix"
            )
        return M
