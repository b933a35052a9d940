"""MEMO: test time robustness via adaptation and augmentation.

Zhang, Levine, Finn, NeurIPS 2022, https://arxiv.org/abs/2110.09506
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..method import AUTO
from ..parts.classifier import Classifier
from ..parts.losses import log_softmax
from ..parts.optim import OptimizerName
from ..parts.output import USES_FEATURES
from ..parts.replaced import measured, replaced_statistics
from ..parts.statistics import Pair
from .augmented import Augmented


@dataclass
class MEMO(Augmented):
    """Each image on its own: make the mean prediction over its views certain, predict, forget.

    views            B: augmented views of an image
    prior_strength   N: statistics of batch norms are N / (N + 1) of the source's and the rest of
                     the image's own; None: the source's alone
    episodic         "image", or what is kept from image to image is not MEMO
    augment, mean, std, seed: see Augmented. lr, optimizer, momentum: see GradientMethod. None is
    what the number of classes implies.
    """

    key = "memo"
    summary = "certain mean prediction over views, one image at a time"
    passes = "2F+1B"  # for each image, one of the forwards with all its views
    timing = "after"
    needs = frozenset()
    own_statistics = True
    loss = "H of the mean over views of σ(p)"
    published = {
        "lr": "0.005 (CIFAR, SGD), 2.5e-4 (ImageNet, ResNet-50, SGD), 1e-5 (others, AdamW)",
        "views": "32 (CIFAR), 64 (ImageNet)",
        "prior_strength": "16 (ImageNet, batch norm)",
    }

    lr: float = AUTO
    optimizer: OptimizerName = "sgd"
    momentum: float = 0.0
    augment: str | Callable[[Tensor], Tensor] = "augmix"
    views: int = AUTO
    prior_strength: float | None = 16.0
    episodic: bool | str = "image"

    def implied(self, classes: int) -> Mapping[str, Any]:
        small = classes <= 100
        return {"lr": 0.005 if small else 2.5e-4, "views": 32 if small else 64}

    def check(self) -> None:
        super().check()
        self.require(self.views is None or self.views >= 1, "views", wanted="at least 1 view")
        good = self.prior_strength is None or self.prior_strength >= 0
        self.require(good, "prior_strength", wanted="a number of images >= 0, or None")

    def configure(self, model: Classifier) -> None:
        model.freeze()
        model.thaw([name for name, _ in model.net.named_parameters()])

    def forward(self, model: Classifier, x: Tensor) -> Tensor:
        """One by one where batch norms take their share from each image."""
        one_by_one = self.prior_strength is not None and model.batch_norms
        with self._mixed(model.net):
            return torch.cat([model(part) for part in x.split(1 if one_by_one else len(x))])

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        if self.predict == "before" and self.output in USES_FEATURES:
            with torch.no_grad():
                self.forward(model, x)  # the stage takes the features of images, not of views
        shown = x.repeat_interleave(self.views, 0)
        with self._mixed(model.net):
            logits = model(self.augmented(model, shown))
        log_p = log_softmax(logits).unflatten(0, (len(x), self.views))
        log_mean: Tensor = log_p.logsumexp(1) - math.log(self.views)  # log of the mean over views
        self.update(-(log_mean.exp() * log_mean).sum(1))
        return log_mean

    def _mixed(self, net: nn.Module) -> AbstractContextManager[None]:
        """Source statistics, with a share of those of what is shown; no gradient through them."""
        strength = self.prior_strength
        share = 0.0 if strength is None else 1 / (strength + 1)

        def mix(name: str, x: Tensor, source: Pair) -> Pair:
            mean, var = (s.to(b).lerp(b, share) for s, b in zip(source, measured(x), strict=True))
            return mean, var

        return replaced_statistics(net, mix if share else lambda name, x, source: source)
