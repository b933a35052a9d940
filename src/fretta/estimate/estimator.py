"""Estimator: fed batch by batch, it estimates whether adapting helps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ConfigError, InputError, StateError
from ..experiment.metrics import collapsed, effective_classes
from ..prepare import predicts
from .shares import Dominant, SourceFacts, dominant_class
from .sums import HEAD, Array, accuracies, batch_sums, change_variance

STATE_FORMAT = 1
BLOCKS = 32  # of consecutive batches; when they are full, neighbors are merged
# What confidence and capacity get wrong, as a share of the disagreement: the smallest multiple of
# 0.05 with which 90 % intervals hold in 90 % of the runs of every CIFAR-10 condition of
# benchmarks/estimate.py. docs/estimate.md has the coverage elsewhere.
MODEL_ERROR = 0.2


@dataclass(frozen=True)
class Estimate:
    """Accuracy of both models on the images seen, and its change by adapting, all in [-1, 1]."""

    source: float
    adapted: float
    change: float
    low: float  # interval of the change
    high: float
    samples: int
    helps: bool | None  # None: cannot tell, the interval holds 0
    method: str = "capacity"
    level: float = 0.9  # how often the interval is meant to hold the truth
    disagreement: float = 0.0  # share of images on which the predictions differ
    collapsed: bool = False  # the adapted model predicts far fewer classes than the source model
    uneven: Dominant | None = None  # no prior, and this class may make the classes uneven
    balanced: bool = True  # `change` assumes nearly balanced classes; else their shares are known


class Estimator:
    """Takes the logits of both models batch by batch; memory does not grow with the stream.

        estimator.update(source_logits, adapted_logits)
        estimator.result().helps

    level        how often the interval is meant to hold
    temperature  divides the logits of both: 1, or what calibrates the source model on labeled
                 source images
    prior        share of each class among the images, if known
    source       the source model on labeled source images: what it confuses tells the shares of
                 the classes where the images did not shift
    """

    def __init__(
        self,
        *,
        level: float = 0.9,
        temperature: float = 1.0,
        prior: Sequence[float] | None = None,
        source: SourceFacts | None = None,
    ) -> None:
        if not 0 < level < 1:
            raise ConfigError(f"level={level!r}; a share between 0 and 1, such as 0.9, is expected")
        if not (math.isfinite(temperature) and temperature > 0):
            raise ConfigError(f"temperature={temperature!r}; a positive number is expected")
        self.level, self.temperature = level, temperature
        self.prior = None if prior is None else _shares(prior)
        self.source = source
        self.reset()

    def reset(self) -> None:
        """Forget every batch."""
        self._sums: list[Array] = []  # one row per block
        self._last: Array | None = None  # the batch before
        self._batches = 0  # in the last block
        self._length = 1  # batches per block
        self._classes: int | None = None

    @property
    def samples(self) -> int:
        return int(sum(row[0] for row in self._sums))

    def update(self, source_logits: Tensor, adapted_logits: Tensor) -> None:
        """Add a batch: (N, C) logits of both models for the same N images."""
        self._check(source_logits, adapted_logits)
        if not len(source_logits):
            return
        self._classes = source_logits.shape[1]
        row = batch_sums(source_logits, adapted_logits, self.temperature, self._last)
        self._last = row
        if self._sums and self._batches < self._length:
            self._sums[-1] = self._sums[-1] + row
            self._batches += 1
            return
        if len(self._sums) == BLOCKS:
            self._sums = [a + b for a, b in zip(self._sums[::2], self._sums[1::2], strict=True)]
            self._length *= 2
        self._sums.append(row)
        self._batches = 1

    def _check(self, source: Tensor, adapted: Tensor) -> None:
        if source.dim() != 2 or source.shape != adapted.shape or source.shape[1] < 2:
            raise InputError(
                f"logits of shape {tuple(source.shape)} and {tuple(adapted.shape)}; two of the same"
                " shape (images, classes) are expected"
            )
        classes = source.shape[1]
        if self._classes not in (None, classes):
            raise InputError(f"{classes} classes, but the batches before had {self._classes}")
        if self.prior is not None and len(self.prior) != classes:
            raise InputError(f"prior has {len(self.prior)} shares, the logits {classes} classes")
        if not bool(predicts(source).all()):
            raise InputError("the source model's logits are not finite: no estimate is possible")

    def result(self, predicted: Sequence[float] | None = None) -> Estimate:
        """The estimate for the images so far.

        predicted   how often the adapted model predicted each class, if it saw more images than
                    were given here: whether the classes look uneven is judged on all of them
        """
        if not self._sums:
            raise InputError("there is nothing to estimate from: no batch has been seen")
        sums = np.stack(self._sums)
        total = sums.sum(0)
        n, d = int(total[0]), float(total[1] / total[0])
        confidence, confidence_a, by_source, by_adapted = np.split(total[HEAD:], 4)
        before, after = effective_classes(by_source), effective_classes(by_adapted)
        lost = collapsed(after, before)
        counts = by_adapted if predicted is None else np.asarray(predicted, dtype=np.float64)
        surer = bool(confidence_a.sum() > confidence.sum())
        known, uneven = self._known_shares(by_source, confidence), None
        guesses: list[Array | None] = [known]
        if known is None and d > 0 and not lost:
            uneven = dominant_class(by_source, counts, surer)
            guesses.append(_shares(by_adapted))
        if uneven is not None or (known is None and not (lost or surer)):
            guesses.append(self._source_shares(by_source))
        pairs = [[float(a[0]) for a in accuracies(total[None], guess)] for guess in guesses]
        changes = [max(-d, min(d, adapted - source)) for source, adapted in pairs]
        # d/n: what labels do given the predictions, each of n images moves the change by -1, 0 or 1
        sampling = max(change_variance(sums, guess) for guess in guesses) + d / n
        model = MODEL_ERROR * d / NormalDist().inv_cdf(0.95)
        half = NormalDist().inv_cdf(0.5 + self.level / 2) * math.sqrt(sampling + model**2)
        low, high = max(min(changes) - half, -d), min(max(changes) + half, d)
        if uneven is not None:  # all that capacity took off the source model may have been correct
            low = -d
        return Estimate(
            *(pairs[0][0], pairs[0][1], changes[0], low, high, n, _helps(low, high)),
            level=self.level,
            disagreement=d,
            collapsed=lost,
            uneven=uneven,
            balanced=known is None,
        )

    def _known_shares(self, counts: Array, mass: Array) -> Array | None:
        """As given, or by what the source model confuses if the images did not shift."""
        if self.prior is not None or self.source is None:
            return self.prior
        return None if self.source.shifted(counts, mass) else self.source.shares(counts)

    def _source_shares(self, counts: Array) -> Array:
        return _shares(counts) if self.source is None else self.source.shares(counts)

    def state_dict(self) -> dict[str, Any]:
        """Everything seen so far, as tensors and plain values."""
        return {
            "format": STATE_FORMAT,
            "temperature": self.temperature,
            "classes": self._classes,
            "sums": torch.from_numpy(np.stack(self._sums)) if self._sums else torch.empty(0, 0),
            "last": None if self._last is None else torch.from_numpy(self._last),
            "batches": self._batches,
            "length": self._length,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken. On an error nothing has changed."""
        if not self.state_dict().keys() <= state.keys() or state["format"] != STATE_FORMAT:
            raise StateError(f"no state of an Estimator in format {STATE_FORMAT}: {sorted(state)}")
        if state["temperature"] != self.temperature:
            raise StateError(
                f"the state was taken with temperature={state['temperature']}, not"
                f" {self.temperature}"
            )
        self._sums = [np.array(row) for row in state["sums"].double().numpy()]
        self._last = None if state["last"] is None else state["last"].double().numpy().copy()
        self._classes = state["classes"]
        self._batches, self._length = int(state["batches"]), int(state["length"])


def estimate(
    source_logits: Tensor | Iterable[Tensor],
    adapted_logits: Tensor | Iterable[Tensor],
    *,
    level: float = 0.9,
    temperature: float = 1.0,
    prior: Sequence[float] | None = None,
    source: SourceFacts | None = None,
) -> Estimate:
    """`Estimator` in one call: (N, C) logits of both models, or one such tensor per batch.

    Give batches where there were batches: how much they differ from each other is part of the
    interval. A single tensor counts as one batch.
    """
    estimator = Estimator(level=level, temperature=temperature, prior=prior, source=source)
    before, after = (
        [logits] if isinstance(logits, Tensor) else list(logits)
        for logits in (source_logits, adapted_logits)
    )
    if len(before) != len(after):
        raise InputError(f"{len(before)} batches of source logits, {len(after)} of adapted ones")
    for pair in zip(before, after, strict=True):
        estimator.update(*pair)
    return estimator.result()


def combine(estimates: Sequence[Estimate]) -> Estimate:
    """Estimates of several domains as one, weighted by images.

    Better than one estimator over all of them: a model that collapses into another class in every
    domain looks diverse overall. Intervals are averaged too, as if all erred the same way.
    """
    if not estimates:
        raise InputError("there is nothing to combine: no estimate was given")
    if len(estimates) == 1:
        return estimates[0]
    samples = sum(e.samples for e in estimates)

    names = ("source", "adapted", "change", "low", "high", "disagreement")
    means = {n: float(sum(getattr(e, n) * e.samples for e in estimates) / samples) for n in names}
    return replace(
        estimates[0],
        **means,  # type: ignore[arg-type]
        samples=samples,
        helps=_helps(means["low"], means["high"]),
        balanced=any(e.balanced for e in estimates),
        collapsed=2 * sum(e.samples for e in estimates if e.collapsed) > samples,
        uneven=max((e.uneven for e in estimates if e.uneven), key=lambda u: u.share, default=None),
    )


def _helps(low: float, high: float) -> bool | None:
    return True if low > 0 else False if high < 0 else None


def _shares(prior: Sequence[float] | Array) -> Array:
    shares = np.asarray(prior, dtype=np.float64)
    if shares.ndim != 1 or not np.isfinite(shares).all() or (shares < 0).any() or not shares.sum():
        raise ConfigError(f"prior={prior!r}; a share >= 0 for each class is expected")
    return np.asarray(shares / shares.sum())
