"""S-FRET: feature redundancy elimination for test time adaptation, the simple form.

You, Lu, Huang, Nie, "FRET: Feature Redundancy Elimination for Test Time Adaptation", ICCV 2025.
Equation numbers are the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..errors import warn
from ..method import GradientMethod, Need
from ..parts.classifier import Classifier
from ..parts.redundancy import redundancy


@dataclass
class SFRET(GradientMethod):
    """Make the features of a batch share less with each other.

    variant   "paper" follows the equations, "released" the published code
    lr, optimizer, momentum: see GradientMethod.
    """

    key = "s-fret"
    summary = "minimize the redundancy of the features"
    needs = frozenset({Need.NORM, Need.HEAD})
    variants = ("paper", "released")
    loss = "R_e = Σ_{i≠j} |Z̃ᵀZ̃|_ij, Z̃ the features with unit columns over the batch"
    published = {"lr": "Adam 1e-4"}
    differs = {"released": "the mean over all entries instead of the sum"}

    lr: float = 1e-4
    variant: str = "paper"

    def start(self, model: Classifier) -> None:
        super().start(model)
        self.warned = False

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        z, logits = model.features(x)
        if len(z) == 1:
            # One sample: every |correlation| is 1 and R_e constant, there is nothing to learn.
            self._warn_once()
            return logits
        loss = redundancy(z)  # L_SFRET = R_e = ‖Z̃ᵀZ̃ - I‖₁   (eqs. 1 and 2)
        if self.variant == "released":
            loss = loss / z.shape[1] ** 2  # the mean over all d² entries
        self.update(loss)
        return logits

    def _warn_once(self) -> None:
        if not self.warned:
            self.warned = True
            warn("s-fret: a batch of one has no redundancy to reduce, so it is only predicted")
