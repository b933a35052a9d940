"""Does adapting help? An answer without labels, from what two models say about the same images.

Three facts about the accuracies a_s of the source model and a_a of the adapted one:

    confidence   where a model is calibrated, its mean confidence is its accuracy
    capacity     class k holds a share π_k of the images, so no more than π_k of all answers can be
                 right answers "k": whatever is predicted beyond that is wrong, however confident
    agreement    only images on which the two differ can make a difference: |a_a - a_s| <= d

The first two give an estimate of each model, a = sum_k min(A_k, cap_k), where A_k is the confidence
(summed over images that are called k, per image); the third bounds their difference. Capacity is
what unmasks a collapsed model, which is very confident and calls everything by one name.

A fourth matters where neighboring images tend to share their class. The source model looks at one
image at a time, so if its answers are more alike within a batch than across neighboring batches,
so are the labels. Batch statistics remove what the images of a batch have in common; a model whose
answers have lost it has lost accuracy.

Without a prior the classes are taken for nearly balanced. Where they look uneven, nothing is said
to help. Where labels are known, `Measured` has the last word.

docs/estimate.md says how well this works, and when it does not.
"""

from __future__ import annotations

from .balance import Dominant
from .estimator import Estimator, estimate
from .paired import Measured
from .values import Estimate, combine

__all__ = ["Dominant", "Estimate", "Estimator", "Measured", "combine", "estimate"]
