"""Merging of weights: pull adapted tensors towards others of the same names."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


@torch.no_grad()
def pull(tensors: Mapping[str, Tensor], towards: Mapping[str, Tensor], share: float) -> None:
    """θ ← (1 - share) θ + share θ', in place, for every name of `tensors`.

    Towards `model.origin` it bounds how far adaptation can go; with the roles of teacher and
    student it is the update of an averaged teacher.
    """
    if share and tensors:
        ours, theirs = list(tensors.values()), [towards[name] for name in tensors]
        torch._foreach_lerp_(ours, theirs, share)
