"""LAME: parameter-free online test-time adaptation.

Boudiaf, Mueller, Ben Ayed, Bertinetto, CVPR 2022, https://arxiv.org/abs/2201.05718
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..method import Method, Need
from ..parts.classifier import Classifier
from ..parts.laplacian import AFFINITIES, Affinity, adjusted, affinity


@dataclass
class LAME(Method):
    """Let images with similar embeddings have similar predictions; nothing in the model changes.

    affinity     "rbf", "knn" or "linear": how alike two embeddings of the batch are
    k            nearest neighbors, of knn and for the width of rbf
    iterations   at most so many

    It helps where the images of a batch share few classes (video, sorted streams) and harms where
    classes are mixed. `output="lame"` does the same behind any other method.
    """

    key = "lame"
    summary = "similar embeddings of a batch get similar predictions"
    needs = frozenset({Need.HEAD})
    gradient = False
    loss = "over assignments Y: Σ_i KL(y_i ‖ σ(p_i)) - Σ_ij w_ij y_i·y_j; returns log σ(p) + W Y"
    published = {"affinity": "rbf, knn and linear were searched; rbf in the code", "k": "1, 3, 5"}

    affinity: Affinity = "rbf"
    k: int = 5
    iterations: int = 100

    def check(self) -> None:
        super().check()
        good = self.affinity in AFFINITIES
        self.require(good, "affinity", wanted=" or ".join(map(repr, AFFINITIES)))
        self.require(self.k >= 1, "k", wanted="at least 1 neighbor")
        self.require(self.iterations >= 1, "iterations", wanted="at least 1")

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        return self.forward(model, x)

    def forward(self, model: Classifier, x: Tensor) -> Tensor:
        z, logits = model.features(x)
        return adjusted(logits, affinity(z, self.affinity, self.k), self.iterations)
