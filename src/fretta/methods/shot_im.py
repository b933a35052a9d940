"""SHOT-IM, online: do we really need to access the source data?

Liang, Hu, Feng, ICML 2020, https://arxiv.org/abs/2002.08546. The paper adapts offline, for many
epochs; online it is known from three codes, which differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..method import AUTO, GradientMethod, Need
from ..parts.classifier import Classifier
from ..parts.losses import entropy, marginal_entropy
from ..parts.norm import batch_statistics, use_batch_statistics
from ..parts.optim import OptimizerName
from ..parts.random import seeded


@dataclass
class SHOTIM(GradientMethod):
    """Information maximization: each prediction certain, all of them together diverse.

    variant        whose code: that of "t3a", of "tsd" or of "lame"
    weight_decay   of the optimizer
    seed           of the dropout that train mode turns on (tsd)
    lr, optimizer, momentum: see GradientMethod. None is what the variant implies.
    """

    key = "shot-im"
    summary = "information maximization, all parameters but the head"
    needs = frozenset({Need.HEAD})
    variants = ("t3a", "tsd", "lame")
    loss = "mean_i H(p_i) - H(q̄), q̄ = mean_i σ(p_i)"
    published = {
        "lr": "t3a: 5e-5 × {0.1, 1, 10}; tsd: chosen per data set; lame: 1e-3",
        "steps": "t3a: 1 or 3",
    }
    differs = {
        "tsd": "train mode: batch statistics and dropout instead of source statistics",
        "lame": "scale and shift only, batch statistics in the update, source statistics in the"
        " prediction, which follows the update; SGD without momentum",
    }

    variant: str = "t3a"
    lr: float = AUTO
    optimizer: OptimizerName = AUTO
    momentum: float = AUTO
    weight_decay: float = AUTO
    seed: int = 0

    def implied(self, classes: int) -> Mapping[str, Any]:
        if self.variant == "lame":
            sgd = {"lr": 1e-3, "optimizer": "sgd", "momentum": 0.0, "weight_decay": 1e-4}
            return {**sgd, "predict": "after"}
        return {"lr": 5e-5, "optimizer": "adam", "momentum": 0.9, "weight_decay": 0.0}

    def configure(self, model: Classifier) -> None:
        model.freeze()
        if self.variant == "lame":
            model.thaw_norm()
            for layer in model.batch_norms:
                layer.training = False  # batch statistics in the update alone
            return
        if self.variant == "tsd":
            use_batch_statistics(model.net)
        head = f"{model.head_name}."
        names = [name for name, _ in model.net.named_parameters()]
        model.thaw([name for name in names if not name.startswith(head)])

    def start(self, model: Classifier) -> None:
        super().start(model)
        for group in self.opt.param_groups:
            group["weight_decay"] = self.weight_decay
        self.generator = seeded(self.seed, model.parameters()[0].device)

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        with self._mode(model):
            logits = model(x)
        if len(x) > 1:  # else the two terms cancel, and what is left of them is rounding
            epsilon = 1e-10 if self.variant == "lame" else 1e-5
            self.update(entropy(logits).mean() - marginal_entropy(logits, epsilon))
        return logits

    def _mode(self, model: Classifier) -> AbstractContextManager[None]:
        if self.variant == "tsd":  # dropout is on
            return model.training(self.generator)
        return batch_statistics(model.net) if self.variant == "lame" else nullcontext()
