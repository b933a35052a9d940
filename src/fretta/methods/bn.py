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
from ..parts.norm import use_batch_statistics
from ..parts.replaced import measured, mixed_statistics, replaced_statistics
from ..parts.statistics import Pair

PARTS = ("both", "mean", "variance")
MEMORIES = ("none", "cumulative", "moving")


@dataclass
class BN(Method):
    """Normalize by the statistics of the test batch instead of those of the training set.

    alpha            α: weight of the batch, (1 - α) source + α batch statistics
    prior_strength   N: the source counts as so many images, α = n / (N + n) for a batch of n;
                     None: α as given
    parts            which statistics come from the batch: "both", the "mean", the "variance"
    memory           "cumulative": the average over all batches so far; "moving": a moving average
                     that begins at the source, from a first forward, used in a second; "none"
    rate             of the moving average

    With any of the last four the variance is the unbiased one, as in the codes they are from.
    """

    key = "bn"
    summary = "batch-norm statistics of the test batch"
    gradient = False
    neutral = ("prior_strength", "parts", "memory", "rate")
    loss = "none; statistics (1 - α) source + α batch"
    published = {
        "alpha": "1 (Nado et al.)",
        "prior_strength": "16 to 256 for small batches (Schneider et al.)",
        "rate": "0.1",
    }

    alpha: float = 1.0
    prior_strength: float | None = None
    parts: str = "both"
    memory: str = "none"
    rate: float = 0.1

    @property
    def batch_share(self) -> float | None:
        return self.alpha if self._plain else None

    @property
    def _plain(self) -> bool:
        return (self.prior_strength, self.parts, self.memory) == (None, "both", "none")

    def check(self) -> None:
        super().check()
        self.require(0 <= self.alpha <= 1, "alpha", wanted="a number in [0, 1]")
        good = self.prior_strength is None or self.prior_strength >= 0
        self.require(good, "prior_strength", wanted="a number of images >= 0")
        self.require(self.parts in PARTS, "parts", wanted=" or ".join(map(repr, PARTS)))
        self.require(self.memory in MEMORIES, "memory", wanted=" or ".join(map(repr, MEMORIES)))
        self.require(0 < self.rate <= 1, "rate", wanted="a number in (0, 1]")
        alone = self.memory == "none" or (
            (self.alpha, self.prior_strength, self.parts) == (1, None, "both")
        )
        self.require(alone, "memory", wanted="it alone, without alpha, prior_strength or parts")
        good = self._plain or self.statistics is None
        self.require(good, "statistics", wanted="None beside prior_strength, parts and memory")

    def configure(self, model: Classifier) -> None:
        super().configure(model)
        if self._plain:
            use_batch_statistics(model.net)
        if not model.batch_norms:
            warn("bn: the model has no batch-norm layer, so this equals 'source'")

    def start(self, model: Classifier) -> None:
        self.average: dict[str, list[Tensor]] = {}  # mean and variance of each layer
        self.batches = 0

    def forward(self, model: Classifier, x: Tensor) -> Tensor:
        if not self._plain:
            with replaced_statistics(model.net, self._chosen):
                return model(x)
        if self.alpha == 1:
            return model(x)
        with mixed_statistics(model.net, self.alpha):
            return model(x)

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        self.batches += 1
        rate = {"moving": self.rate, "cumulative": 1 / self.batches}.get(self.memory)
        if rate is None:
            return self.forward(model, x)
        cumulative = self.memory == "cumulative"

        def moved(name: str, x: Tensor, source: Pair) -> Pair:
            """Each layer is normalized by its new average, or by the batch alone."""
            pairs = zip(self.average.get(name, source), measured(x), strict=True)
            self.average[name] = [old.to(new).lerp(new, rate) for old, new in pairs]
            mean, var = self.average[name] if cumulative else measured(x, correction=0)
            return mean, var

        with replaced_statistics(model.net, moved):
            logits = model(x)
        return logits if cumulative else self.forward(model, x)

    def _chosen(self, name: str, x: Tensor, source: Pair) -> Pair:
        if self.memory != "none":
            mean, var = self.average.get(name, source if self.memory == "moving" else measured(x))
            return mean, var
        N = self.prior_strength
        share = self.alpha if N is None else len(x) / (N + len(x))
        mean, var = (s.to(b).lerp(b, share) for s, b in zip(source, measured(x), strict=True))
        return (
            mean if self.parts != "variance" else source[0],
            var if self.parts != "mean" else source[1],
        )
