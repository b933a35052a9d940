"""G-FRET: feature redundancy elimination for test time adaptation, the graph form.

You, Lu, Huang, Nie, "FRET: Feature Redundancy Elimination for Test Time Adaptation", ICCV 2025.
Equation numbers are the paper's. What its released code computes instead, and the paper's
ablations, are in gfret_released.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import ConfigError
from ..method import AUTO, Need
from ..parts.classifier import Classifier
from ..parts.losses import cross_entropy, entropy
from ..parts.redundancy import split_representations
from ..parts.supports import SupportBank, add_batch, bank_of_head
from .gfret_released import CHOICES, Switches, switched_step


@dataclass
class GFRET(Switches):
    """Separate what features say by themselves from what they repeat; leave the latter behind.

    lr        learning rate
    variant   "paper" follows the equations, "released" the published code
    lam       λ: weight of the prediction loss L_P beside the representation loss L_R
    k1        K1: supports kept per class, whose mean is the class center c_j
    k2        K2: share of the batch that is learned from, by lowest entropy
    mask      M: the entries of the feature graph that are not redundant, a symmetric (d, d)
              matrix; None is the identity: what a feature says by itself

    See Switches for the ablations and the choices of the released code, GradientMethod for
    optimizer and momentum.
    """

    key = "g-fret"
    summary = "contrast features with their redundant part"
    needs = frozenset({Need.NORM, Need.HEAD})
    variants = ("paper", "released")
    loss = "L_R + λ L_P: contrast of R_A with centers and R_R; H(P_A) - Σ σ(P_R) log σ(1 - P_A)"
    published = {"lr": "Adam 1e-4", "lam": "1e-6 to 100, by task", "k1": "100", "k2": "0.95"}

    lr: float = 1e-4
    variant: str = "paper"
    lam: float = AUTO
    k1: int = 100
    k2: float = 0.95
    mask: Any = None

    def implied(self, classes: int) -> Mapping[str, Any]:
        column = self.variants.index(self.variant)
        # λ of the paper is tuned per task; 0.01 is measured (benchmarks/lam.py): L_P(R) as written
        # in eq. 8 pulls predictions away from the right class, so larger values lose accuracy.
        return {"lam": (0.01, 100.0)[column], **{k: v[column] for k, v in CHOICES.items()}}

    def check(self) -> None:
        super().check()
        self.require(self.k1 >= 1, "k1", wanted="at least 1 support per class")
        self.require(0 < self.k2 <= 1, "k2", wanted="a share in (0, 1]")

    def start(self, model: Classifier) -> None:
        super().start(model)
        weight = model.head_weight()
        self.M = self._mask(weight)
        self.bank = (
            bank_of_head(model, self.k1)  # released
            if self.centers == "sum"
            else SupportBank(len(weight), self.k1, like=weight)
        )

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        if self.M is not None or self.switched():
            return switched_step(self, model, x)
        z, p = model.features(x)
        R_A, R_R = split_representations(z)  # eqs. 3-5, with M = I: R_A = Z
        c = self.class_centers(model, z.detach(), p.detach())  # eq. 7
        s = F.normalize(R_A) @ F.normalize(c).T  # sim(R_A, c_j)
        L_R = contrast(s, R_A, R_R, p.detach().argmax(1))  # eq. 6
        P_A, P_R = p, model.head(R_R)  # the head's predictions from R_A = Z and R_R
        L_P = entropy(P_A) + cross_entropy(P_R.softmax(1), 1 - P_A)  # eq. 8
        self.update(L_R + self.lam * L_P, self.reliable(p.detach(), s.detach()))  # eq. 9
        return p

    def class_centers(self, model: Classifier, z: Tensor, p: Tensor) -> Tensor:
        """c_j: mean of the K1 most confident embeddings of class j in the whole stream (eq. 7)."""
        add_batch(self.bank, z, p)
        return self.bank.means(fallback=model.head_weight())

    def reliable(self, p: Tensor, s: Tensor) -> Tensor:
        """The K2 share of lowest entropy (supplement), where argmax p = argmax ŷ, ŷ = σ(s)."""
        count = max(1, int(self.k2 * len(p) + 1e-9))  # 0.29 · 100 is 28.999… in floating point
        lowest = entropy(p).topk(count, largest=False).indices
        agree = p.argmax(1) == s.argmax(1)
        return agree & torch.zeros_like(agree).index_fill(0, lowest, True)

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


def contrast(s: Tensor, R_A: Tensor, R_R: Tensor, o: Tensor) -> Tensor:
    """L_R (eq. 6): cross-entropy of the cosines of R_A to [c_1 … c_C, R_R] against class o."""
    redundant = F.cosine_similarity(R_A, R_R, dim=1)[:, None]
    return F.cross_entropy(torch.cat([s, redundant], 1), o, reduction="none")
