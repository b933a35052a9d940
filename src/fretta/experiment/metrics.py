"""Rows per domain, and the sums over a stream."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .records import Outcome

BINS = 15  # of the calibration error
COLLAPSED = 0.3  # of the effective classes beyond the first

COLUMNS = ("domain", "label", "predicted", "confidence", "nll", "entropy")


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    """The samples of a stream, in order, as if it were one batch."""
    columns: Any = {n: np.concatenate([getattr(o, n) for o in outcomes]) for n in COLUMNS}
    return Outcome(0, **columns, seconds=sum(o.seconds for o in outcomes))


def count_classes(classes: NDArray[np.int64], number: int = 0) -> NDArray[np.int64]:
    """How often each class occurs; -1, no prediction, is none."""
    return np.bincount(classes[classes >= 0], minlength=number)


def macro_accuracy(samples: Outcome) -> float:
    """Mean over the classes that occur of the accuracy on each: every class counts the same."""
    seen = np.bincount(samples.label)
    right = np.bincount(samples.label, weights=samples.right)
    occurs = seen > 0
    return float((right[occurs] / seen[occurs]).mean())


def calibration_bins(samples: Outcome) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(count, sum of confidence, number right) in equal bins of confidence over (0, 1]."""
    known = np.nan_to_num(samples.confidence.astype(np.float64))  # the error is NaN all the same
    index = np.clip(np.ceil(known * BINS).astype(int) - 1, 0, BINS - 1)
    count = np.bincount(index, minlength=BINS)
    confidence = np.bincount(index, weights=samples.confidence, minlength=BINS)
    right = np.bincount(index, weights=samples.right, minlength=BINS)
    return count, confidence, right


def calibration_error(samples: Outcome) -> float:
    """ECE: the gap between confidence and accuracy, weighted over bins of confidence."""
    _, confidence, right = calibration_bins(samples)
    return float(np.abs(confidence - right).sum() / len(samples.label))


def effective_classes(counts: NDArray[Any]) -> float:
    """exp of the entropy of the class shares: 1 if all are one class, C if all are as frequent; 0
    if there are none."""
    share = counts[counts > 0] / max(counts.sum(), 1)
    return float(np.exp(-(share * np.log(share)).sum())) if len(share) else 0.0


def collapsed(predicted: float, reference: float) -> bool:
    """Whether predictions fall into far fewer effective classes, beyond the first, than those of a
    reference do."""
    return predicted - 1 < COLLAPSED * (reference - 1)


def _row(samples: Outcome) -> dict[str, Any]:
    labels, predicted = (
        effective_classes(count_classes(of)) for of in (samples.label, samples.predicted)
    )
    return {
        "images": len(samples.label),
        "accuracy": float(samples.right.mean()),
        "accuracy_macro": macro_accuracy(samples),
        "ece": calibration_error(samples),
        "nll": float(samples.nll.astype(np.float64).mean()),
        "entropy": float(samples.entropy.astype(np.float64).mean()),
        "predicted_classes": predicted,
        "collapsed": collapsed(predicted, labels),
    }


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """A value we do not have, or that overflowed, is a dash (None), never a sentinel."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _seconds(outcomes: Sequence[Outcome]) -> float:
    """The median. The first step, which also pays for what torch loads then, is left out if it can
    be."""
    return float(np.median([o.seconds for o in outcomes]))


def _rounded(value: float, digits: int) -> float | None:
    return round(value, digits) if math.isfinite(value) else None


def _domains(samples: Outcome) -> Iterator[tuple[int, Outcome]]:
    """(number, its samples) of each domain, in the order of first appearance."""
    for which in dict.fromkeys(samples.domain.tolist()):
        mask = samples.domain == which
        yield which, replace(samples, **{name: getattr(samples, name)[mask] for name in COLUMNS})


def per_domain(outcomes: Sequence[Outcome], names: Sequence[str]) -> list[dict[str, Any]]:
    """One row per domain."""
    rows = []
    for which, mine in _domains(joined(outcomes)):
        touching = [o for o in outcomes if (o.domain == which).any()]
        rates = [o.pass_rate for o in touching if o.pass_rate is not None]
        row = {
            "domain": names[which],
            **_row(mine),
            "pass_rate": float(np.mean(rates)) if rates else None,
            "batches": len(touching),
            "seconds_per_batch": _seconds(
                [o for o in touching if o is not outcomes[0]] or touching
            ),
        }
        rows.append(_finite(row))
    return rows


def overall(outcomes: Sequence[Outcome], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Over all samples of the stream, and the mean over domains that papers report."""
    return {
        **_finite(_row(joined(outcomes))),
        "mean_over_domains": float(np.mean([row["accuracy"] for row in rows])),
        "batches": len(outcomes),
        "seconds": float(sum(o.seconds for o in outcomes)),
        "seconds_per_batch": _seconds(outcomes[1:] or outcomes),
    }


def details(
    outcomes: Sequence[Outcome], names: Sequence[str], class_names: Sequence[str]
) -> dict[str, Any]:
    """What figures need: every batch, and per domain the classes and the calibration bins."""
    samples, classes = joined(outcomes), len(class_names)

    def counts(of: NDArray[np.int64]) -> list[int]:
        return count_classes(of, classes).tolist()  # type: ignore[no-any-return]

    domains = []
    for which, mine in _domains(samples):
        count, confidence, right = calibration_bins(mine)
        domains.append(
            {
                "domain": names[which],
                "class_seen": counts(mine.label),
                "class_right": counts(mine.label[mine.right]),
                "class_predicted": counts(mine.predicted),
                "bin_count": count.tolist(),
                "bin_confidence": [_rounded(float(value), 4) for value in confidence],
                "bin_right": right.astype(int).tolist(),
            }
        )
    confusion = None
    if classes <= 100:  # (label, predicted); larger ones are unreadable anyway
        known = samples.predicted >= 0
        pairs = samples.label[known] * classes + samples.predicted[known]
        flat = np.bincount(pairs, minlength=classes**2)
        confusion = flat.reshape(classes, classes).tolist()
    return {
        "classes": [str(name) for name in class_names],
        "domains": domains,
        "confusion": confusion,
        "batches": {
            "domain": [names[int(o.domain[0])] for o in outcomes],
            "images": [len(o.label) for o in outcomes],
            "right": [int(o.right.sum()) for o in outcomes],
            "entropy": [_rounded(float(o.entropy.mean()), 5) for o in outcomes],
            "seconds": [round(o.seconds, 6) for o in outcomes],
            "pass_rate": [None if o.pass_rate is None else round(o.pass_rate, 4) for o in outcomes],
        },
    }
