"""CoTTA: continual test-time domain adaptation.

Wang, Fink, Van Gool, Dai, CVPR 2022, https://arxiv.org/abs/2203.13591
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import warn
from ..method import AUTO
from ..parts.classifier import Classifier
from ..parts.losses import cross_entropy, symmetric_cross_entropy
from ..parts.norm import use_batch_statistics
from ..parts.tensors import copy_tensors, pull
from .augmented import Augmented


@dataclass
class CoTTA(Augmented):
    """Learn from an averaged teacher, which looks at many views where the source is unsure; some
    weights go back to the source at every step. The teacher predicts.

    variant     "paper" follows the equations; "released" the published codes: dropout is on, only
                parameters called weight or bias learn, above 100 classes the loss is symmetric
    alpha       α: how much of the teacher stays at a step
    restore     p: share of the weights that go back to the source's at every step
    p_th        the teacher averages over views if the source's mean confidence is below it
    views       N: augmented views
    symmetric   cross-entropy both ways, half of each
    augment, mean, std, seed: see Augmented. lr, optimizer, momentum: see GradientMethod. None is
    what the variant and the classes imply.
    """

    key = "cotta"
    summary = "averaged teacher over views, weights restored at random"
    passes = "3F+1B"  # while the source is sure; otherwise as many teacher's forwards as views
    needs = frozenset()
    variants = ("paper", "released")
    loss = "-sum_c σ(t)_c log σ(p)_c, t the teacher's logits: of x, or the mean over its views"
    published = {
        "lr": "1e-3, Adam (CIFAR); 0.01, SGD with Nesterov momentum 0.9 (ImageNet-C)",
        "alpha": "0.999",
        "restore": "0.01 (CIFAR), 0.001 (ImageNet-C)",
        "p_th": "0.92 (CIFAR-10-C), 0.72 (CIFAR-100-C), 0.1 (ImageNet-C)",
        "views": "32",
    }
    differs = {
        "released": "train mode (dropout on), only parameters called weight or bias; the ImageNet"
        " code has the symmetric loss"
    }

    variant: str = "paper"
    alpha: float = 0.999
    restore: float = AUTO
    p_th: float = AUTO
    views: int = 32
    symmetric: bool = AUTO

    def implied(self, classes: int) -> Mapping[str, Any]:
        return {
            "restore": 0.01 if classes <= 100 else 0.001,
            "p_th": 0.92 if classes <= 10 else 0.72 if classes <= 100 else 0.1,
            "symmetric": self.variant == "released" and classes > 100,
        }

    def check(self) -> None:
        super().check()
        self.require(0 <= self.alpha <= 1, "alpha", wanted="a momentum in [0, 1]")
        good = self.restore is None or 0 <= self.restore <= 1
        self.require(good, "restore", wanted="a share in [0, 1]")
        self.require(self.views >= 1, "views", wanted="at least 1 view")

    def caution(self, classes: int) -> None:
        if 0 < self.p_th <= 1 / classes:
            warn(
                f"cotta: p_th={self.p_th:.3g} never asks for views: no confidence is below 1/C ="
                f" {1 / classes:.3g}"
            )

    def configure(self, model: Classifier) -> None:
        model.freeze()
        use_batch_statistics(model.net)
        names = [name for name, _ in model.net.named_parameters()]
        if self.variant == "released":  # not class tokens, nor tables of positions
            names = [n for n in names if n.rpartition(".")[2] in ("weight", "bias")]
        model.thaw(names)

    def start(self, model: Classifier) -> None:
        super().start(model)
        self.teacher = copy_tensors(model.adapted)

    def forward(self, model: Classifier, x: Tensor) -> Tensor:
        with model.using(self.teacher):
            return model(x)

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        # train mode: dropout is on
        mode = model.training(self.generator) if self.variant == "released" else nullcontext()
        with mode:
            target = self._target(model, x)
            logits = model(x)
        if self.symmetric:
            self.update(symmetric_cross_entropy(logits, target))
        else:
            self.update(cross_entropy(target.softmax(1), logits))
        pull(self.teacher, model.adapted, 1 - self.alpha)
        self._restore(model)
        return target

    @torch.no_grad()
    def _target(self, model: Classifier, x: Tensor) -> Tensor:
        """The teacher's logits; their mean over views if the source is unsure on average.

        All three networks normalize by the statistics of what they are shown.
        """
        with model.using(model.origin, aside=True):
            confidence = model(x).softmax(1).amax(1).mean()
        if confidence >= self.p_th:
            return self.forward(model, x)
        views = (self.forward(model, self.augmented(model, x)) for _ in range(self.views))
        return sum(views, next(views)) / self.views

    @torch.no_grad()
    def _restore(self, model: Classifier) -> None:
        """θ ← θ0 where a coin of probability p says so."""
        if self.restore == 0:
            return
        for name, p in model.adapted.items():
            coin = torch.rand(p.shape, generator=self.generator, device=p.device)
            p.copy_(torch.where(coin < self.restore, model.origin[name], p))
