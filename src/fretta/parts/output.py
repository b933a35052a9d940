"""Output stages: what may be done to the predictions of a batch behind any method."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from .laplacian import adjusted, affinity
from .prior import times_prior, with_prior

Output = Literal["none", "prior", "prior-released", "lame"]
OUTPUTS = get_args(Output)
USES_FEATURES = frozenset({"lame"})


def finish(output: str | None, logits: Tensor, features: Tensor | None) -> Tensor:
    """Logits as the stage returns them. Stages keep no state, and nothing learns from them.

    prior            log σ(p) + log π, π the smoothed share of each class in the batch
    prior-released   p · π, as ROID's code has it
    lame             Laplacian adjustment by the embeddings of the batch
    """
    if output == "prior":
        return with_prior(logits)
    if output == "prior-released":
        return times_prior(logits)
    if output == "lame" and features is not None:
        return adjusted(logits, affinity(features.to(logits.dtype)))
    return logits
