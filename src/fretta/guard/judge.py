"""Does adaptation do harm? Pure functions of a comparison of two models on the same images.

Where two models disagree on an image, each believes that the other is wrong. What a model believes
is lost by taking the other's class is the probability it gives to its own class minus that of the
other's class. Measured over healthy and harmful streams (docs/guard.md):

    learning     The reference is the same model without learning. Learning that helps changes
                 predictions of which that model was unsure; learning that decays overturns what
                 it was sure of. What the learned model itself believes counts for nothing: it was
                 trained to be sure.
    statistics   The reference is the source model. Neither was trained on these images, so both
                 beliefs count: where the source model believes to lose more than the other to
                 gain, the statistics of the batches do harm (one class, two images).
    lost         A source model that predicts few classes, where the other predicts all, and agrees
                 with it no more than by chance, is sure and wrong: its belief does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

from .guard import Guard
from .schedule import MANY

FEW = 16  # images; fewer prove nothing
LITTLE = 0.02  # in probability; learning that costs less does no harm
SMALL = 0.03  # in probability; a smaller loss by statistics is none


@dataclass(frozen=True)
class Harm:
    kind: str  # "not finite", "drift", "learning", "statistics" or "source"
    reason: str


@dataclass(frozen=True)
class Comparison:
    """A model and its reference on the same images. Means over images, in probability."""

    images: float
    gain: float  # what the model believes its own classes are better than the reference's
    cost: float  # what the reference believes its own classes are better than the model's
    cost_error: float  # standard errors: of the cost ...
    net_error: float  # ... and of gain - cost
    unsure: float  # 1 - confidence of the reference
    agreement: float  # beyond chance: Cohen's kappa; 1 is always, 0 is by chance
    marginal: float  # entropy of the mean prediction, of ln C
    reference_marginal: float


def judge_learning(seen: Comparison, guard: Guard) -> Harm | None:
    """The learned model beside the same model without learning."""
    limit = learning_limit(seen, guard)
    if seen.images < FEW or seen.cost - few_images(seen) * seen.cost_error <= limit:
        return None
    return Harm(
        "learning",
        f"learning overturns what the model without learning is sure of: {seen.cost:.3f} of its"
        f" belief on {seen.images:.0f} images, with {seen.unsure:.3f} in doubt",
    )


def learning_limit(seen: Comparison, guard: Guard) -> float:
    return max(guard.max_cost * seen.unsure, LITTLE)


def few_images(seen: Comparison) -> float:
    """Standard errors to allow for: 1.5 on the first images, half of one on a full window."""
    return 1.5 if seen.images < 2 * MANY else 0.5


def learning_in_doubt(seen: Comparison, guard: Guard) -> bool:
    """Close to what would be harm."""
    return seen.cost > 0.7 * learning_limit(seen, guard)


def does_well(seen: Comparison, guard: Guard) -> bool:
    """Whether a state is worth going back to: far from harm."""
    return seen.cost < 0.35 * learning_limit(seen, guard)


def judge_statistics(seen: Comparison, guard: Guard) -> Harm | None:
    """The model without learning beside the source model."""
    net, least = seen.gain - seen.cost, max(SMALL, guard.errors * seen.net_error)
    if seen.images < FEW or net >= -least or source_lost(seen):
        return None
    return Harm(
        "statistics",
        "batch statistics make predictions less certain than the source model's: where the two"
        f" disagree they gain {seen.gain:.2f} in probability and the source model loses"
        f" {seen.cost:.2f}, on {seen.images:.0f} images",
    )


def statistics_in_doubt(seen: Comparison) -> bool:
    return seen.gain - seen.cost < -seen.net_error and not source_lost(seen)


def trusted_again(seen: Comparison, guard: Guard) -> bool:
    """To come back from the source model: as clearly better as harm is clearly worse."""
    return seen.gain - seen.cost > guard.errors * seen.net_error or source_lost(seen)


def source_lost(seen: Comparison) -> bool:
    """Whether the source model is sure and wrong, rather than the stream of few classes."""
    few_classes = seen.marginal - seen.reference_marginal > 0.55
    return seen.images >= MANY and few_classes and seen.agreement < 0.15
