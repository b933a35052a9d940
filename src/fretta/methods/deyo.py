"""DeYO: entropy is not enough for test-time adaptation: from the perspective of disentangled
factors.

Lee, Jung, Lee, Park, Shin, Hwang, Yoon, ICLR 2024, https://arxiv.org/abs/2403.07366
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, warn
from ..method import AUTO, GradientMethod
from ..parts.classifier import Classifier
from ..parts.destroy import occluded, ordered_patches, ordered_pixels
from ..parts.filters import caution_entropy_margin
from ..parts.losses import entropy
from ..parts.norm import norm_layers, without_last_block
from ..parts.optim import OptimizerName, none_kept
from ..parts.random import seeded

DESTROY = ("patch", "pixel", "occlusion")
SKIPPED = ("layer4", "blocks.9", "blocks.10", "blocks.11", "norm.")


@dataclass
class DeYO(GradientMethod):
    """Minimize the entropy of samples whose prediction needs the shape of the object.

    variant       "paper" leaves out the last block by depth, "released" by the names of layers
    e_margin      τ_Ent as a fraction of ln C: certain is an entropy below it
    e_zero        Ent_0 as a fraction of ln C, of the weights
    plpd_margin   τ_PLPD: the probability of the own label must fall by more without the object
    destroy       "patch" order, "pixel" order, "occlusion", or a function of an image batch
    patches       n: an image has n × n patches
    occlusion     side of the occluded square in the center, as a share of the image's
    seed          of the random orders
    lr, optimizer, momentum: see GradientMethod. None is what the variant and the classes imply.
    """

    key = "deyo"
    summary = "entropy of samples that depend on the object's shape"
    passes = "2F+1B"
    variants = ("paper", "released")
    loss = "mean over kept of (exp(Ent_0 - H_i) + exp(PLPD_i)) H_i, PLPD = σ(p(x))_y - σ(p(x'))_y"
    published = {
        "e_margin": "0.5 (ImageNet-C), 1 (ColoredMNIST)",
        "e_zero": "0.4 (ImageNet-C), 1 (ColoredMNIST)",
        "plpd_margin": "0.3 (mild ImageNet-C), 0.2 (wild), 0.5 (Waterbirds, ColoredMNIST)",
        "patches": "4",
        "occlusion": "112 of 224 pixels",
        "lr": "SGD with momentum 0.9: 2.5e-4 (ResNet-50), 1e-3/64·B (ViT), ×5 on Waterbirds",
    }
    differs = {"released": "layers are left out by name: layer4, blocks.9 to 11, norm"}

    lr: float = 2.5e-4
    optimizer: OptimizerName = "sgd"
    variant: str = "paper"
    e_margin: float = 0.5
    e_zero: float = 0.4
    plpd_margin: float = AUTO
    destroy: str | Callable[[Tensor], Tensor] = "patch"
    patches: int = 4
    occlusion: float = 0.5
    seed: int = 0

    def implied(self, classes: int) -> Mapping[str, Any]:
        return {"plpd_margin": 0.3}

    def check(self) -> None:
        super().check()
        good = callable(self.destroy) or self.destroy in DESTROY
        self.require(good, "destroy", wanted=f"{', '.join(map(repr, DESTROY))} or a function")
        self.require(self.patches >= 2, "patches", wanted="at least 2")
        self.require(0 < self.occlusion <= 1, "occlusion", wanted="a share in (0, 1]")

    def caution(self, classes: int) -> None:
        caution_entropy_margin(self.key, self.e_margin)
        if self.plpd_margin >= 1:
            warn(
                f"deyo: plpd_margin={self.plpd_margin:.3g} removes every sample: no probability"
                " falls by more than 1"
            )
        if self.plpd_margin < -1:
            warn(f"deyo: plpd_margin={self.plpd_margin:.3g} never removes a sample")

    def configure(self, model: Classifier) -> None:
        model.freeze()
        if self.variant == "released":
            layers = {
                name: layer
                for name, layer in norm_layers(model.net).items()
                if name != "norm" and not any(part in name for part in SKIPPED)
            }
        else:
            layers = without_last_block(model.net)
        model.thaw_norm(layers)

    def start(self, model: Classifier) -> None:
        super().start(model)
        self.generator = seeded(self.seed, torch.device("cpu"))

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        if x.dim() != 4 and not callable(self.destroy):
            raise InputError(
                f"the batch has shape {tuple(x.shape)}; deyo takes objects in images apart,"
                " (N, C, H, W). Give destroy= a function of such a batch, or use 'eta'"
            )
        logits = model(x)
        H = entropy(logits)
        unit = math.log(logits.shape[1])
        certain = H.detach() < self.e_margin * unit
        self.kept = certain
        if none_kept(certain):
            return logits
        rows = certain.nonzero().flatten()
        plpd = self._fall(model, x[rows], logits[rows].detach())
        kept = plpd > self.plpd_margin
        weight = (self.e_zero * unit - H[rows].detach()).exp() + plpd.exp()
        self.update(weight * H[rows], kept)
        self.kept = torch.zeros_like(certain).index_put_((rows,), kept)  # of the entire batch
        return logits

    @torch.no_grad()
    def _fall(self, model: Classifier, x: Tensor, logits: Tensor) -> Tensor:
        """PLPD: by how much the own label's probability falls when the object is destroyed."""
        label = logits.argmax(1, keepdim=True)
        without = model(self._destroyed(x))  # a batch of its own, with its own statistics
        return (logits.softmax(1) - without.softmax(1)).gather(1, label).squeeze(1)

    def _destroyed(self, x: Tensor) -> Tensor:
        if callable(self.destroy):
            return self.destroy(x)
        height, width = x.shape[2:]
        side = round(self.occlusion * min(height, width))
        if self.destroy == "patch":
            noise = torch.rand(len(x), self.patches**2, generator=self.generator)
            return ordered_patches(x, self.patches, noise.argsort(1))
        if self.destroy == "pixel":
            order = torch.randperm(height * width, generator=self.generator)
            return ordered_pixels(x, order)
        return occluded(x, side, (height - side) // 2, (width - side) // 2)
