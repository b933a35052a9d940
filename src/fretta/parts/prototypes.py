"""Support banks as T3A, TSD and G-FRET fill them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .classifier import Classifier
from .losses import entropy
from .supports import SupportBank


@torch.no_grad()
def bank_of_head(model: Classifier, k: int) -> SupportBank:
    """A bank of unit vectors that begins with the head's own weight rows, one per class.

    They are labeled and ranked by the head's prediction for them and compete like any support.
    """
    weight = model.head_weight()
    bank = SupportBank(len(weight), k, like=weight)
    add_batch(bank, F.normalize(weight), model.head(weight))
    return bank


def add_batch(bank: SupportBank, z: Tensor, logits: Tensor) -> None:
    """Offer embeddings with their predicted class and the entropy of that prediction."""
    sound = z.isfinite().all(1)  # an overflowed embedding would spoil its class for good
    bank.add(z, logits.argmax(1), entropy(logits).where(sound, torch.nan))
