"""TSD: feature alignment and uniformity for test time adaptation.

Wang, Zhang, Yan, Zhang, Lian, CVPR 2023, https://arxiv.org/abs/2303.10902
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from ..method import GradientMethod, Need
from ..parts.classifier import Classifier
from ..parts.losses import kl_divergence
from ..parts.norm import use_batch_statistics
from ..parts.random import seeded
from ..parts.supports import add_batch, bank_of_head


@dataclass
class TSD(GradientMethod):
    """Pull each prediction toward the prototypes of a bank of confident embeddings.

    variant   "paper" follows the equations, "released" the published code
    k1        supports kept per class
    seed      of the dropout that train mode turns on (released)
    lr, optimizer, momentum: see GradientMethod.
    """

    key = "tsd"
    summary = "self-distillation from prototypes, all parameters"
    needs = frozenset({Need.HEAD})
    variants = ("paper", "released")
    loss = "mean over kept of KL(σ(cos(z_i, c)) ‖ σ(p_i)); kept: both predict the same class"
    published = {"lr": "Adam, 1e-4 in the code", "k1": "100 in FRET's comparison"}
    differs = {
        "released": "L1-normalized vectors, a softmax of a softmax as target, no filter, dropout on"
    }

    lr: float = 1e-4
    variant: str = "paper"
    k1: int = 100
    seed: int = 0

    def check(self) -> None:
        super().check()
        self.require(self.k1 >= 1, "k1", wanted="at least 1 support per class")

    def configure(self, model: Classifier) -> None:
        model.freeze()
        use_batch_statistics(model.net)
        model.thaw([name for name, _ in model.net.named_parameters()])

    def start(self, model: Classifier) -> None:
        super().start(model)
        self.bank = bank_of_head(model, self.k1)
        self.generator = seeded(self.seed, model.parameters()[0].device)

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        # the released code adapts in train mode: dropout is on
        mode = model.training(self.generator) if self.variant == "released" else nullcontext()
        with mode:
            z, logits = model.features(x)
        add_batch(self.bank, F.normalize(z.detach()), logits.detach())
        c = self.bank.sums()
        if self.variant == "released":
            # Their normalize(v, 1) is the L1 norm, and the softmax of the target is taken twice.
            similarity = F.normalize(z, p=1) @ F.normalize(c, p=1).T
            self.update(kl_divergence(similarity, logits.detach().softmax(1)))
            return logits
        similarity = F.normalize(z) @ F.normalize(c).T
        # consistency filter: prototypes and classifier agree
        kept = similarity.detach().argmax(1) == logits.detach().argmax(1)
        self.update(kl_divergence(similarity, logits.detach()), kept)
        return logits
