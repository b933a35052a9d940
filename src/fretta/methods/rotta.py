"""RoTTA: robust test-time adaptation in dynamic scenarios.

Yuan, Xie, Li, CVPR 2023, https://arxiv.org/abs/2303.13899
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..method import Need
from ..parts.classifier import Classifier
from ..parts.images import TimelyMemory
from ..parts.losses import cross_entropy
from ..parts.moving import Moving, robust
from ..parts.norm import batch_norms
from ..parts.replaced import fixed_statistics, source_statistics
from ..parts.tensors import copy_tensors, pull
from .augmented import Augmented


@dataclass
class RoTTA(Augmented):
    """Learn from a small balanced memory of the stream, with batch norms whose statistics move
    slowly from the source's. An averaged teacher predicts.

    memory         N: images kept, balanced over predicted classes
    update_every   images between two updates, which may fall inside a batch
    nu             ν: how far the teacher moves to the student at an update
    alpha          α: how far the statistics of batch norms move to those of the memory
    lambda_t       λ_t: weight of the age in the score by which images leave
    lambda_u       λ_u: weight of the uncertainty in it
    augment, mean, std, seed: see Augmented. lr, optimizer, momentum: see GradientMethod.
    """

    key = "rotta"
    summary = "balanced memory, slowly moving statistics, a teacher"
    passes = "3F+1B"  # in a batch with one update
    needs = frozenset({Need.NORM, Need.BATCH_NORM})
    own_statistics = True
    loss = "mean_m w_m CE(σ(t_m), p(aug x_m)), w = 1 / (1 + exp(age / N)), t the teacher's logits"
    published = {
        "lr": "1e-3, Adam",
        "memory": "64",
        "update_every": "64",
        "nu": "0.001",
        "alpha": "0.05",
        "lambda_t": "1",
        "lambda_u": "1",
    }

    memory: int = 64
    update_every: int = 64
    nu: float = 0.001
    alpha: float = 0.05
    lambda_t: float = 1.0
    lambda_u: float = 1.0

    def check(self) -> None:
        super().check()
        for name in ("memory", "update_every"):
            self.require(getattr(self, name) >= 1, name, wanted="at least 1 image")
        for name in ("nu", "alpha"):
            self.require(0 <= getattr(self, name) <= 1, name, wanted="a rate in [0, 1]")

    def configure(self, model: Classifier) -> None:
        model.freeze()
        model.thaw_norm(batch_norms(model.net))
        model.net.eval()  # the statistics are those of `robust`

    def start(self, model: Classifier) -> None:
        super().start(model)
        self.teacher = copy_tensors(model.adapted)
        self.student_statistics: Moving = source_statistics(model.net)
        self.teacher_statistics: Moving = source_statistics(model.net)
        self.images = TimelyMemory(self.memory, self.lambda_t, self.lambda_u)

    def forward(self, model: Classifier, x: Tensor) -> Tensor:
        with model.using(self.teacher), fixed_statistics(model.net, self.teacher_statistics):
            return model(x)

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        with torch.no_grad():
            logits = self.forward(model, x)
        q = logits.softmax(1)
        uncertainty = -(q * (q + 1e-6).log()).sum(1)
        self.images.classes = logits.shape[1]
        rows = zip(x, logits.argmax(1).tolist(), uncertainty.tolist(), strict=True)
        for image, label, u in rows:
            self.images.add(image, label, u)
            if self.images.clock % self.update_every == 0:
                self._learn(model, *self.images.batch(x))
        return logits

    def _learn(self, model: Classifier, x: Tensor, ages: Tensor) -> None:
        """One update from the memory; the statistics of both networks move."""
        with (
            torch.no_grad(),
            model.using(self.teacher, aside=True),
            robust(model.net, self.teacher_statistics, self.alpha),
        ):
            target = model(x)
        with robust(model.net, self.student_statistics, self.alpha):
            logits = model(self.augmented(model, x))
        timely = torch.sigmoid(-ages / self.memory)  # e^-a / (1 + e^-a)
        self.update(timely * cross_entropy(target.softmax(1), logits))
        pull(self.teacher, model.adapted, self.nu)
