"""Sums over batches, and what follows from them. Nothing else of the images is kept.

A row of sums has HEAD numbers, then four blocks with one number per class: confidence by predicted
class of the source model and of the adapted one, and how often each model predicts the class. The
HEAD numbers are: images; disagreements; pairs of images within the batch, and how many of these
have the same prediction by the source model and by the adapted one; the same three for pairs with
the batch before.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..prepare import predicts

Array = NDArray[np.float64]

HEAD = 8
FLATTEN = 0.25  # π is the mean of both models' predicted shares to this power: nearly balanced
SLACK = 1.0  # standard deviations of a sampled share by which a class may exceed π
LOST = 0.45  # accuracy per lost likeness within batches (a root of probabilities, see likeness)
LIKENESS_DOUBT = 3.0  # standard deviations that likeness within the source model's batches exceeds
REPLICATES = 200  # of the bootstrap


def batch_sums(source: Tensor, adapted: Tensor, temperature: float, before: Array | None) -> Array:
    """The row of one batch; `before` is the row of the batch before.

    An image for which the adapted model gives no prediction (NaN) counts as wrong: confidence 0.
    """
    n, classes = source.shape
    source, adapted = (x.detach().double().cpu() / temperature for x in (source, adapted))
    valid = predicts(adapted)
    adapted = torch.where(valid[:, None], adapted, 0.0)
    confidence, predicted = source.softmax(1).max(1)
    confidence_a, predicted_a = adapted.softmax(1).max(1)
    differ = (predicted != predicted_a) | ~valid
    count = torch.bincount(predicted, minlength=classes).double()
    count_a = torch.bincount(predicted_a, valid.double(), classes)
    same, same_a = (float((c * (c - 1)).sum()) for c in (count, count_a))
    across = [0.0, 0.0, 0.0]
    if before is not None:
        *_, last, last_a = np.split(before[HEAD:], 4)
        across = [before[0] * n, float(last @ count.numpy()), float(last_a @ count_a.numpy())]
    head = [n, float(differ.sum()), n * (n - 1), same, same_a, *across]
    by_class = [
        torch.bincount(predicted, confidence, classes),
        torch.bincount(predicted_a, confidence_a * valid, classes),
        count,
        count_a,
    ]
    row: Array = torch.cat([torch.tensor(head, dtype=torch.float64), *by_class]).numpy()
    return row


def accuracies(sums: Array, prior: Array | None) -> tuple[Array, Array]:
    """Estimated accuracy of both models for each row of sums; they differ by at most d."""
    n, d = sums[:, :1], sums[:, 1] / sums[:, 0]
    mass, mass_a, count, count_a = (part / n for part in np.split(sums[:, HEAD:], 4, axis=1))
    if prior is None:
        shares = ((count + count_a) / 2) ** FLATTEN
        shares = shares / shares.sum(1, keepdims=True)
    else:
        shares = np.broadcast_to(prior, mass.shape)
    cap = shares + SLACK * np.sqrt(shares * (1 - shares) / n)
    source = np.minimum(mass, cap).sum(1)
    lost = likeness(sums, 1, LIKENESS_DOUBT) - likeness(sums, 2, 0.0)
    adapted = np.minimum(mass_a, cap).sum(1) - LOST * np.maximum(lost, 0)
    change = np.clip(adapted - source, -d, d)
    source = np.minimum(source, 1)
    return source, np.clip(source + change, 0, 1)


def likeness(sums: Array, column: int, doubt: float) -> Array:
    """sqrt(P(two images of one batch get one class) - P(two of neighboring batches do)), or 0.

    For errors that do not depend on the batch it is proportional to accuracy above chance. `doubt`
    standard deviations, as for independent pairs, are subtracted.
    """
    pairs, across = np.maximum(sums[:, 2], 1), np.maximum(sums[:, 5], 1)
    near = sums[:, 5 + column] / across
    noise = np.sqrt(near * (1 - near) * (2 / pairs + 1 / across))
    excess = sums[:, 2 + column] / pairs - near - doubt * noise
    return np.where(sums[:, 5] > 0, np.sqrt(np.maximum(excess, 0)), 0)


def change_variance(sums: Array, prior: Array | None) -> float:
    """Variance of the change by a circular block bootstrap: neighboring batches are alike."""
    blocks = len(sums)
    if blocks < 2:
        return 0.0
    length = max(1, round(blocks ** (1 / 3)))
    random = np.random.default_rng(0)  # the same sums, the same interval
    starts = random.integers(0, blocks, size=(REPLICATES, math.ceil(blocks / length), 1))
    chosen = ((starts + np.arange(length)) % blocks).reshape(REPLICATES, -1)[:, :blocks]
    weights = np.zeros((REPLICATES, blocks))
    np.add.at(weights, (np.arange(REPLICATES)[:, None], chosen), 1)
    source, adapted = accuracies(weights @ sums, prior)
    return float((adapted - source).var())
