"""T3A: test-time classifier adjustment module for model-agnostic domain generalization.

Iwasawa, Matsuo, NeurIPS 2021, https://openreview.net/forum?id=e_yvNqkJKAW
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from ..method import Method, Need
from ..parts.classifier import Classifier
from ..parts.losses import wide
from ..parts.supports import add_batch, bank_of_head


@dataclass
class T3A(Method):
    """Classify by prototypes of the most confident embeddings so far, instead of by the head.

    k   M: supports kept per class, those of lowest entropy

    The head's own weight rows are the first supports. The scores are dot products with unit
    vectors: their order means something, their softmax is no probability.
    """

    key = "t3a"
    summary = "prototypes of confident embeddings replace the head"
    needs = frozenset({Need.HEAD})
    gradient = False
    loss = "none; score of class k: z · c_k, c_k = Σ supports / ‖Σ supports‖"
    published = {"k": "1, 5, 20, 50, 100 or all, chosen on source validation data"}

    k: int = 20

    def check(self) -> None:
        super().check()
        self.require(self.k >= 1, "k", wanted="at least 1 support per class")

    def start(self, model: Classifier) -> None:
        self.bank = bank_of_head(model, self.k)

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        z, logits = model.features(x)
        add_batch(self.bank, F.normalize(wide(z)).to(z), logits)
        return self._scores(z)

    def forward(self, model: Classifier, x: Tensor) -> Tensor:
        z, _ = model.features(x)
        return self._scores(z)

    def _scores(self, z: Tensor) -> Tensor:
        """A class without any support has the prototype 0, and the score 0."""
        return z @ F.normalize(wide(self.bank.sums())).T.to(z.dtype)
