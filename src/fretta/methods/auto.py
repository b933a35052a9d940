"""Auto: one setting for every stream.

Statistics that fit the stream and the hedge with the source model are those of `stein`. On top
scale and shift learn a little, from certain predictions, and are pulled back to the source's, so
that long streams do not decay. Nothing is learned while the source model predicts. docs/auto.md
says which part does what, with measurements.

Reliable samples: Niu et al., "Efficient test-time model adaptation without forgetting" (EATA),
ICML 2022. The pull to the source: Marsden, Döbler, Yang, "Universal test-time adaptation through
weight ensembling, diversity weighting, and prior correction" (ROID), WACV 2024.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..method import GradientMethod
from ..parts.classifier import Classifier
from ..parts.gate import Gate
from ..parts.losses import entropy
from .stein import Stein, source_logits


@dataclass
class Auto(GradientMethod, Stein):
    """Adaptive statistics, anchored learning of scale and shift, and the source as a hedge.

    lr         learning rate, in units of the layer's scale: its root mean square in the source
    e_margin   E0 as a fraction of ln C: learn from predictions whose entropy is below it
    pull       share of the way back to the source's parameters, at every batch learned from
    balance    learn less from frequent classes: a class has the weight share^-balance; 0: all
               alike; half of it without batch norms
    budget     share of the batches to learn from; 0: none, as 'stein'
    hedge      mix predictions with the source model's, by their certainty; begin again where
               learning loses classes
    optimizer, momentum: see GradientMethod. Batches of n < 64 images learn less: by n / 64, and by
    its root where no batch norm makes small batches noisy.
    """

    key = "auto"
    summary = "our default: adaptive statistics, anchored learning, hedged output"
    passes = "2F+1B"
    gradient = True
    lasting = (*Stein.lasting, "lr_factor")
    loss = "mean over kept of w_i exp(E0 - H_i) H_i, w by predicted share; then θ is pulled to θ0"

    lr: float = 3e-3
    e_margin: float = 0.4
    pull: float = 0.05
    balance: float = 0.5
    budget: float = 1.0

    def check(self) -> None:
        super().check()
        self.require(self.e_margin > 0, "e_margin", wanted="a number above 0")
        self.require(0 <= self.pull <= 1, "pull", wanted="a number in [0, 1]")
        self.require(0 <= self.balance <= 1, "balance", wanted="a number in [0, 1]")
        self.require(0 <= self.budget <= 1, "budget", wanted="a number in [0, 1]")

    def configure(self, model: Classifier) -> None:
        GradientMethod.configure(self, model)

    def start(self, model: Classifier) -> None:
        super().start(model)
        self.gate = Gate(mixes=self.hedges(model))
        self.batches = 0
        self.due = 0.0  # batches to learn from
        self.lr_factor = 1.0  # of lr; a quarter after each collapse
        self.learned = False
        self.seen: Tensor | None = None  # images of each class of late, as predicted

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        self.batches += 1
        gate = self.gate
        if gate.closed and self.batches % 2:
            return source_logits(model, x)  # look every other batch
        learning = gate.weight >= 0.5
        self.due += self.budget if learning else 0.0
        learning = learning and self.due >= 1
        with torch.set_grad_enabled(learning):
            logits = model.settle(x)
        predicted = logits.detach()
        if self.hedge:
            predicted = self.hedged(model, x, predicted)
        if self.learned and gate.collapsed:
            del logits
            return self.restart(model, x)
        if learning:
            self.due -= 1
            self.learn(model, logits)
        return predicted

    def learn(self, model: Classifier, logits: Tensor) -> None:
        H = entropy(logits)
        E0 = self.e_margin * math.log(logits.shape[1])
        certain = H.detach() < E0
        part = min(1.0, len(logits) / 64)
        lr, balance = self.lr * part, self.balance
        if not model.batch_norms:
            lr, balance = self.lr * math.sqrt(part), self.balance / 2
        weight = (E0 - H.detach()).exp() * self.rarity(logits.detach(), certain, balance)
        for group in self.opt.param_groups:
            group["lr"] = lr * self.lr_factor
        before = [parameter.detach().clone() for parameter in model.parameters()]
        self.update(weight * H, certain)
        self.learned = True
        with torch.no_grad():
            for (name, parameter), old in zip(model.adapted.items(), before, strict=True):
                first = model.origin[name]
                scale = model.origin.get(f"{name.rpartition('.')[0]}.weight", first)
                size = scale.square().mean().sqrt()
                parameter.copy_(old.lerp(parameter, size).lerp(first, self.pull * part))

    def rarity(self, logits: Tensor, certain: Tensor, balance: float) -> Tensor:
        """(N,): weights by the share of the predicted class over about 256 images, of mean 1."""
        p = logits.softmax(1, dtype=torch.promote_types(logits.dtype, torch.float32))
        count = p.sum(0)
        if self.seen is not None:
            count = count + self.seen.to(count) * math.exp(-len(p) / 256)
        self.seen = count
        weight = (count + 1).pow(-balance)[p.argmax(1)]
        mean = (weight * certain).sum() / certain.sum().clamp(min=1)
        return weight / mean.clamp(min=torch.finfo(weight.dtype).tiny)

    def restart(self, model: Classifier, x: Tensor) -> Tensor:
        """From the source, at a quarter of the rate, with the batch that showed the collapse."""
        lr_factor, batches = self.lr_factor / 4, self.batches
        model.restore()
        self.start(model)
        self.lr_factor, self.batches = lr_factor, batches
        with torch.no_grad():
            logits = model.settle(x)
        return self.hedged(model, x, logits)
