"""A batch as sums, and sums as accuracies: nothing else of the images is kept."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

HEAD = 8  # numbers of a row before those of the classes
FLATTEN = 0.25  # π is the mean of both models' predicted shares to this power: nearly balanced
SLACK = 1.0  # standard deviations of a sampled share by which a class may exceed π
LOST = 0.45  # accuracy per lost likeness within batches (a root of probabilities, see likeness)
DOUBT = 3.0  # standard deviations that likeness within the source model's batches must exceed


def row(source: Tensor, adapted: Tensor, temperature: float) -> Array:
    """Sums over a batch: n, disagreements; pairs of its images, and of these with the same answer
    by source and by adapted; the same three for pairs with the batch before (filled in later);
    then for each class A of source and of adapted, and their counts.

    An image for which the adapted model gives no finite logits counts as wrong: confidence 0.
    """
    classes = source.shape[1]
    source, adapted = (x.detach().double().cpu() / temperature for x in (source, adapted))
    valid = adapted.isfinite().all(1)
    adapted = torch.where(valid[:, None], adapted, 0.0)
    confidence, called = source.softmax(1).max(1)
    confidence_a, called_a = adapted.softmax(1).max(1)
    confidence_a = confidence_a * valid
    differ = (called != called_a) | ~valid
    count = torch.bincount(called, minlength=classes).double()
    count_a = torch.bincount(called_a, valid.double(), classes)
    n = len(source)
    same, same_a = (float((c * (c - 1)).sum()) for c in (count, count_a))
    parts = [
        torch.tensor([n, differ.sum(), n * (n - 1), same, same_a, 0, 0, 0], dtype=torch.float64),
        torch.bincount(called, confidence, classes),
        torch.bincount(called_a, confidence_a, classes),
        count,
        count_a,
    ]
    row: Array = torch.cat(parts).numpy()
    return row


def accuracies(sums: Array, prior: Array | None) -> tuple[Array, Array]:
    """Estimated accuracy of both models for each row of sums; the difference is within ±d."""
    n, d = sums[:, :1], sums[:, 1] / sums[:, 0]
    mass, mass_a, count, count_a = (part / n for part in np.split(sums[:, HEAD:], 4, axis=1))
    if prior is None:
        shares = ((count + count_a) / 2) ** FLATTEN
        shares = shares / shares.sum(1, keepdims=True)
    else:
        shares = np.broadcast_to(prior, mass.shape)
    cap = shares + SLACK * np.sqrt(shares * (1 - shares) / n)
    source = np.minimum(mass, cap).sum(1)
    lost = likeness(sums, 1, DOUBT) - likeness(sums, 2, 0.0)
    adapted = np.minimum(mass_a, cap).sum(1) - LOST * np.maximum(lost, 0)
    change = np.clip(adapted - source, -d, d)
    source = np.minimum(source, 1)
    return source, np.clip(source + change, 0, 1)


def likeness(sums: Array, column: int, doubt: float) -> Array:
    """sqrt(P(two images of one batch get one class) - P(two of neighboring batches do)), or 0.

    For errors that do not depend on the batch it is proportional to accuracy above chance. `doubt`
    standard deviations, as for independent pairs, are taken off.
    """
    pairs, across = np.maximum(sums[:, 2], 1), np.maximum(sums[:, 5], 1)
    near = sums[:, 5 + column] / across
    noise = np.sqrt(near * (1 - near) * (2 / pairs + 1 / across))
    excess = sums[:, 2 + column] / pairs - near - doubt * noise
    return np.where(sums[:, 5] > 0, np.sqrt(np.maximum(excess, 0)), 0)


def across(before: Array, row: Array) -> Array:
    """Pairs of one image here and one of the batch before, and those with the same answer."""
    counts = [np.split(r[HEAD:], 4)[2:] for r in (before, row)]
    same = [float(a @ b) for a, b in zip(*counts, strict=True)]
    return np.array([before[0] * row[0], *same])
