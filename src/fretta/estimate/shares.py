"""Which shares may the classes have? One answer where they are known, else a range.

Capacity needs the shares. A wrong guess turns the verdict around: taken for balanced, a stream of
80 % cats charges the source model for every cat, and a model whose batch statistics spread the cats
over all classes looks better when it is far worse. So the interval covers every guess that the
predictions allow: nearly balanced classes, the adapted model's predictions, and the source model's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ConfigError, InputError
from .sums import Array

if TYPE_CHECKING:
    from ..experiment.case import Case

# A class is dominant if it is predicted more often than its balanced share by one standard
# deviation of a sampled share, and by a twentieth of the images, which confusions explain.
CONFUSED = 0.05
DOUBT = 1.0
ROUNDS = 1000  # of EM
PRECISE = 1e-9
# On images without shift the source model is as sure as on source images of the same classes, but
# for so many standard deviations and this share.
SURE_DOUBT = 2.0
SURE_LOSS = 0.02


@dataclass(frozen=True)
class Dominant:
    """The class that makes a stream look uneven, and the share of images predicted as it."""

    number: int
    share: float


def dominant(counts: Array) -> NDArray[np.bool_]:
    """For each class: is it predicted far more often than in a balanced stream?"""
    even, images = 1 / len(counts), max(float(counts.sum()), 1.0)
    far = even + CONFUSED + DOUBT * math.sqrt(even * (1 - even) / images)
    return np.asarray(counts / images > far)


def dominant_class(source: Array, adapted: Array, surer: bool) -> Dominant | None:
    """The class that makes uneven classes plausible, if any, from counts of predictions.

    Under shift a source model may predict one class for half of a balanced stream. That is what
    happened if the adapted model does not see that class far too often and is the surer of the two.
    Where classes are uneven, batch statistics take away what the images have in common, and the
    adapted model is less sure.
    """
    suspect = dominant(source)
    if surer:
        suspect = suspect & dominant(adapted)
    if not suspect.any():
        return None
    shares = [counts / max(float(counts.sum()), 1.0) for counts in (source, adapted)]
    number = int(np.where(suspect, shares[0] + shares[1], 0).argmax())
    return Dominant(number, float(max(share[number] for share in shares)))


def em_shares(counts: Array, confusion: Array) -> Array:
    """The shares of the classes that make the predictions most likely, by EM.

    counts      predictions of each class on the stream
    confusion   P(predicted | class), a row per class, on labeled source images

    Label shift: Lipton et al., ICML 2018, as maximum likelihood (Saerens et al., 2002), which
    unlike the inverse of the confusion never leaves the simplex.
    """
    seen = counts / counts.sum()
    shares = np.full(len(counts), 1 / len(counts))
    for _ in range(ROUNDS):
        joint = shares[:, None] * confusion
        mixed = joint.sum(0)
        new = joint @ np.divide(seen, mixed, out=np.zeros_like(seen), where=mixed > 0)
        new /= new.sum()
        if np.abs(new - shares).max() < PRECISE:
            break
        shares = new
    return np.asarray(shares)


@dataclass(frozen=True)
class SourceFacts:
    """The source model on labeled source images: what it confuses, and how sure it is."""

    confusion: Array  # P(predicted | class); a class without images counts as well known
    confidence: Array  # mean confidence by predicted class
    spread: float  # standard deviation of the confidence
    images: int

    @classmethod
    def measure(cls, batches: Iterable[tuple[Tensor, Tensor]]) -> SourceFacts:
        """From (logits, labels); -1 is no label."""
        counts, masses, squares, images = None, None, 0.0, 0
        for logits, labels in batches:
            classes = logits.shape[1]
            if counts is None or masses is None:
                counts, masses = np.zeros((classes, classes)), np.zeros(classes)
            largest = int(labels.max()) if len(labels) else -1
            if len(labels) != len(logits) or largest >= classes:
                raise InputError(
                    f"{len(labels)} labels up to {largest} for logits of shape"
                    f" {tuple(logits.shape)}; one class number per image is expected"
                )
            known = labels >= 0
            logits, labels = logits[known], labels[known]
            sure, predicted = (v.cpu().numpy() for v in logits.double().softmax(1).max(1))
            np.add.at(counts, (labels.cpu().numpy(), predicted), 1)
            np.add.at(masses, predicted, sure)
            squares, images = squares + float((sure**2).sum()), images + len(labels)
        if counts is None or masses is None or not images:
            raise ConfigError("there are no labeled source images to learn the confusions from")
        # one image more per class, predicted right: rows of rare classes stay usable
        confusion = counts + np.eye(len(counts))
        named, mean = counts.sum(0), masses.sum() / images
        confidence = np.divide(masses, named, out=np.full(len(named), mean), where=named > 0)
        spread = math.sqrt(max(0.0, squares / images - mean**2))
        return cls(confusion / confusion.sum(1, keepdims=True), confidence, spread, images)

    def shares(self, counts: Array) -> Array:
        return em_shares(counts, self.confusion)

    def shifted(self, counts: Array, mass: Array) -> bool:
        """Is the source model less sure than on source images that it predicts the same way?

        counts, mass   images and their confidence by predicted class
        """
        images = float(counts.sum())
        expected, found = float(counts @ self.confidence) / images, float(mass.sum()) / images
        noise = self.spread * math.sqrt(1 / images + 1 / self.images)
        return found < expected - SURE_LOSS - SURE_DOUBT * noise


def measure_source(case: Case, batch_size: int = 64) -> SourceFacts | None:
    """From the source images of a case; None where there are no labeled ones."""
    adapter = case.adapter("source")
    pairs = ((adapter(x).float().cpu(), y) for x, y in case.labeled_source(batch_size))
    first = next(pairs, None)
    return None if first is None else SourceFacts.measure(chain([first], pairs))
