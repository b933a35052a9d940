"""RDumb: a simple approach that questions our progress in continual test-time adaptation.

Press, Schneider, Kümmerer, Bethge, NeurIPS 2023, https://arxiv.org/abs/2306.05401
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..method import AUTO
from ..parts.filters import published_margin
from ..parts.optim import OptimizerName
from .eata import ETA


@dataclass
class RDumb(ETA):
    """ETA that begins again at the source model after a fixed number of batches.

    variant       "paper": thresholds follow the number of classes; "released": as for ImageNet
    lr            of SGD
    reset_every   batches between two beginnings
    e_margin, d_margin: see ETA. optimizer, momentum: see GradientMethod. None is what the variant
    and the classes imply.
    """

    key = "rdumb"
    summary = "eta, begun again every so many batches"
    loss = "ETA's: mean over kept of exp(E0 - H_i) H_i; every 1000 batches back to the source"
    published = {
        "reset_every": "1000",
        "lr": "2.5e-4, SGD with momentum 0.9, batches of 64 (ImageNet)",
        "e_margin": "0.4 of ln 1000",
        "d_margin": "0.05 (ImageNet)",
    }
    differs = {"released": "E0 = 0.4 ln 1000 and ε = 0.05 for any number of classes"}

    lr: float = 2.5e-4
    optimizer: OptimizerName = "sgd"
    reset_every: int | None = 1000
    e_margin: float = AUTO
    d_margin: float = AUTO

    def implied(self, classes: int) -> Mapping[str, Any]:
        if self.variant == "released":
            return {"e_margin": 0.4 * math.log(1000) / math.log(classes), "d_margin": 0.05}
        return {"e_margin": 0.4, "d_margin": published_margin(classes)}
