"""Does adapting help? An estimate without labels, from the logits of two models on the same images.

Three facts about the accuracies a_s of the source model and a_a of the adapted one:

    confidence   where a model is calibrated, its mean confidence is its accuracy
    capacity     class k holds a share π_k of the images, so at most π_k of all predictions can be
                 correct predictions of k: whatever is predicted beyond that is wrong
    agreement    only images on which the two differ can make a difference: |a_a - a_s| <= d

The first two estimate each model, a = sum_k min(A_k, cap_k), where A_k is the confidence (summed
over the images predicted as k, per image); the third bounds the difference. Capacity exposes a
collapsed model, which is very confident and predicts one class.

A fourth matters where neighboring images tend to share their class. The source model sees one
image at a time, so if its predictions are more alike within a batch than across neighboring
batches, so are the labels. Batch statistics remove what the images of a batch have in common; a
model whose predictions have lost it has lost accuracy.

The shares π are those of a prior, or what labeled source images tell (`SourceFacts`). Else the
interval covers every guess that the predictions allow, from nearly balanced classes to the shares
that either model predicts. Where labels are known, `Measured` decides.

docs/estimate.md says how well this works, and when it does not.
"""

from __future__ import annotations

from .estimator import Estimate, Estimator, combine, estimate
from .shares import Dominant, SourceFacts
from .verdict import Measured

__all__ = ["Dominant", "Estimate", "Estimator", "Measured", "SourceFacts", "combine", "estimate"]
