"""Test-time batch statistics.

Schneider et al., "Improving robustness against common corruptions by covariate shift adaptation",
NeurIPS 2020, https://arxiv.org/abs/2006.16971
Nado et al., "Evaluating prediction-time batch normalization for robustness under covariate shift",
2020, https://arxiv.org/abs/2006.10963
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..errors import warn
from ..method import Method
from ..parts.classifier import Classifier
from ..parts.norm import mixed_statistics, use_batch_statistics


@dataclass
class BN(Method):
    """Normalize by the statistics of the test batch instead of those of the training set.

    alpha   α: weight of the batch, (1 - α) source + α batch statistics
    """

    key = "bn"
    summary = "batch-norm statistics of the test batch"
    gradient = False

    alpha: float = 1.0

    @property
    def batch_share(self) -> float:
        return self.alpha

    def check(self) -> None:
        super().check()
        self.require(0 <= self.alpha <= 1, "alpha", wanted="a number in [0, 1]")

    def configure(self, model: Classifier) -> None:
        super().configure(model)
        use_batch_statistics(model.net)
        if not model.batch_norms:
            warn("bn: the model has no batch-norm layer, so this equals 'source'")

    def forward(self, model: Classifier, x: Tensor) -> Tensor:
        if self.alpha == 1:
            return model(x)
        with mixed_statistics(model.net, self.alpha):
            return model(x)

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        return self.forward(model, x)
