"""EATA: efficient test-time model adaptation without forgetting (and ETA, without the anchor).

Niu, Wu, Zhang, Chen, Zheng, Zhao, Tan, ICML 2022, https://arxiv.org/abs/2204.02610
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import warn
from ..method import AUTO, GradientMethod, Need
from ..parts.classifier import Classifier
from ..parts.filters import caution_entropy_margin, published_margin
from ..parts.losses import entropy
from ..parts.optim import none_kept


@dataclass
class ETA(GradientMethod):
    """Minimize the entropy of samples that are reliable and not redundant.

    variant    "paper" follows the equations, "released" the published code
    e_margin   E0 as a fraction of ln C: reliable is an entropy below it
    d_margin   ε: a sample is redundant if its cosine to the mean prediction reaches it
    lr, optimizer, momentum: see GradientMethod. None is what the variant and the classes imply.
    """

    key = "eta"
    summary = "entropy of reliable, non-redundant samples"
    variants = ("paper", "released")
    loss = "mean over kept of exp(E0 - H_i) H_i; kept: H_i < E0 and |cos(m, σ(p_i))| < ε"
    published = {
        "e_margin": "0.4",
        "d_margin": "0.4 (CIFAR-10), 0.1 (CIFAR-100), 0.05 (ImageNet)",
        "lr": "SGD with momentum 0.9: 5e-3 (CIFAR), 2.5e-4 (ImageNet)",
    }
    differs = {"released": "of FRET's authors: E0 = 0.5 ln 1000 - 1 and ε = 0.05 for all classes"}

    variant: str = "paper"
    e_margin: float = AUTO
    d_margin: float = AUTO

    def implied(self, classes: int) -> Mapping[str, Any]:
        if self.variant == "released":  # one setting, made for 1000 classes, used for all
            return {"e_margin": (0.5 * math.log(1000) - 1) / math.log(classes), "d_margin": 0.05}
        return {"e_margin": 0.4, "d_margin": published_margin(classes)}

    def caution(self, classes: int) -> None:
        caution_entropy_margin(self.key, self.e_margin)
        # A confident prediction has cosine 1/√C to a uniform mean: below that, all are redundant.
        if self.d_margin < 0.999 / math.sqrt(classes):
            warn(
                f"{self.key}: d_margin={self.d_margin:.3g} is below 1/√C ="
                f" {1 / math.sqrt(classes):.3g}, the cosine of a confident prediction to a balanced"
                " mean: nearly every sample counts as redundant"
            )
        if self.d_margin >= 1:
            warn(f"{self.key}: d_margin={self.d_margin:.3g} can never filter: no cosine exceeds 1")

    def start(self, model: Classifier) -> None:
        super().start(model)
        self.mean: Tensor | None = None  # m: moving average of the kept predictions

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        logits = model(x)
        H = entropy(logits)
        E0 = self.e_margin * math.log(logits.shape[1])
        kept = self._select(logits.detach(), H.detach(), E0)
        weight = (E0 - H.detach()).exp()  # S_ent: more for the more confident
        self.update(weight * H, kept, self.anchor(model))
        return logits

    def _select(self, logits: Tensor, H: Tensor, E0: float) -> Tensor:
        """Reliable: H < E0. Not redundant: |cos(m, σ(p))| < ε. Then m moves to what was kept."""
        probabilities = logits.softmax(1)
        # before anything was kept m = 0: every cosine is 0 and nothing redundant
        m = torch.zeros_like(probabilities[0]) if self.mean is None else self.mean
        cosine = F.cosine_similarity(m[None], probabilities, dim=1)
        kept = (H < E0) & (cosine.abs() < self.d_margin)
        if not none_kept(kept):
            mean = probabilities.where(kept[:, None], 0).sum(0) / kept.sum().clamp(min=1)
            moved = torch.where(m.any(), 0.9 * m + 0.1 * mean, mean)
            self.mean = torch.where(kept.any(), moved, m)
        return kept

    def anchor(self, model: Classifier) -> Tensor | float:
        """What keeps the parameters near the source: nothing in ETA."""
        return 0.0


@dataclass
class EATA(ETA):
    """ETA, held near the source parameters by their Fisher information.

    fisher_alpha   α: weight of the anchor
    fisher_size    source images to measure the Fisher information on
    variant, e_margin, d_margin: see ETA. lr, optimizer, momentum: see GradientMethod.
    """

    key = "eata"
    summary = "eta, held near the source by Fisher information"
    needs = frozenset({Need.NORM, Need.SOURCE})
    without_source = "'eta' is the same method without its anchor"
    loss = "ETA's + α Σ_k F_k (θ_k - θ0_k)², F the Fisher information of the source images"
    published = {
        **ETA.published,
        "fisher_alpha": "1 (CIFAR-10), 2000 (ImageNet)",
        "fisher_size": "2000",
    }

    fisher_alpha: float = AUTO
    fisher_size: int = 2000

    def implied(self, classes: int) -> Mapping[str, Any]:
        large = self.variant == "released" or classes > 100
        return {**super().implied(classes), "fisher_alpha": 2000.0 if large else 1.0}

    def fit(self, model: Classifier, source: Iterable[Tensor]) -> None:
        """F = mean over batches of (∇ cross-entropy to the own argmax)², with test BN."""
        names, parameters = list(model.adapted), model.parameters()
        total = [torch.zeros_like(p) for p in parameters]
        seen = batches = 0
        for x in source:
            logits = model(x)
            loss = F.cross_entropy(logits, logits.detach().argmax(1))
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
            for sum_, g in zip(total, gradients, strict=True):
                if g is not None:
                    sum_ += g.square()
            batches, seen = batches + 1, seen + len(x)
            if seen >= self.fisher_size:
                break
        self.fisher = {n: t / batches for n, t in zip(names, total, strict=True)}

    def anchor(self, model: Classifier) -> Tensor:
        """α sum_i F_i (θ_i - θ_i⁰)²."""
        drift = [
            (self.fisher[name] * (p - model.origin[name]).square()).sum()
            for name, p in model.adapted.items()
        ]
        return self.fisher_alpha * torch.stack(drift).sum()
