"""Estimates that are fed batch by batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ConfigError, InputError, StateError
from .interval import conclude
from .sums import HEAD, Array, accuracies, across
from .sums import row as row_of
from .values import Estimate

STATE_FORMAT = 1
BLOCKS = 32  # of consecutive batches; when they are full, neighbors are merged


class Estimator:
    """Fed batch by batch with the logits of both models; memory does not grow with the stream.

        estimator.update(source_logits, adapted_logits)
        estimator.result().helps

    level        how often the interval is meant to hold
    temperature  divides the logits of both: 1, or what calibrates the source model on labeled
                 source images
    prior        share of each class among the images, where somebody knows it
    """

    def __init__(
        self,
        *,
        level: float = 0.9,
        temperature: float = 1.0,
        prior: Sequence[float] | None = None,
    ) -> None:
        if not 0 < level < 1:
            raise ConfigError(f"level={level!r}; a share between 0 and 1, such as 0.9, is expected")
        if not (math.isfinite(temperature) and temperature > 0):
            raise ConfigError(f"temperature={temperature!r}; a positive number is expected")
        self.level, self.temperature = level, temperature
        self.prior = None if prior is None else _shares(prior)
        self.reset()

    def reset(self) -> None:
        """Forget every batch."""
        self._sums: list[Array] = []  # one row per block, see `sums.row`
        self._last: Array | None = None  # the batch before
        self._batches = 0  # in the last block
        self._length = 1  # batches per block
        self._classes: int | None = None

    @property
    def samples(self) -> int:
        return int(sum(row[0] for row in self._sums))

    def update(self, source_logits: Tensor, adapted_logits: Tensor) -> None:
        """Add a batch: (N, C) logits of both models for the same N images."""
        _check(source_logits, adapted_logits, self._classes, self.prior)
        if not len(source_logits):
            return
        self._classes = source_logits.shape[1]
        row = row_of(source_logits, adapted_logits, self.temperature)
        if self._last is not None:
            row[5:HEAD] = across(self._last, row)
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

    def result(self, predicted: Sequence[float] | None = None) -> Estimate:
        """What can be said about the images so far.

        predicted   how often the adapted model named each class, where it saw more images than
                    were given here: whether the classes look uneven is seen best on all of them
        """
        if not self._sums or self._classes is None:
            raise InputError("there is nothing to estimate from: no batch has been seen")
        sums = np.stack(self._sums)
        source, adapted = accuracies(sums.sum(0)[None], self.prior)
        counts = None if predicted is None else np.asarray(predicted, dtype=np.float64)
        return conclude(sums, float(source[0]), float(adapted[0]), self.prior, self.level, counts)

    # ---- state -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything seen so far, as tensors and plain values."""
        sums = torch.from_numpy(np.stack(self._sums)) if self._sums else torch.empty(0, 0)
        return {
            "format": STATE_FORMAT,
            "temperature": self.temperature,
            "classes": self._classes,
            "sums": sums,
            "last": None if self._last is None else torch.from_numpy(self._last),
            "batches": self._batches,
            "length": self._length,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken. On an error nothing has changed."""
        wanted = {"format", "temperature", "classes", "sums", "last", "batches", "length"}
        if not wanted <= state.keys() or state["format"] != STATE_FORMAT:
            raise StateError(
                f"this is not a state of an Estimator in format {STATE_FORMAT}: it has"
                f" {sorted(state)}"
            )
        if state["temperature"] != self.temperature:
            raise StateError(
                f"the state was taken with temperature={state['temperature']}, here it is"
                f" {self.temperature}; its sums cannot be converted"
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
) -> Estimate:
    """`Estimator` in one call: (N, C) logits of both models, or one such tensor per batch.

    Give batches where there were batches: how much they differ from each other is part of the
    interval. A single tensor counts as one batch.
    """
    estimator = Estimator(level=level, temperature=temperature, prior=prior)
    source = [source_logits] if isinstance(source_logits, Tensor) else list(source_logits)
    adapted = [adapted_logits] if isinstance(adapted_logits, Tensor) else list(adapted_logits)
    if len(source) != len(adapted):
        raise InputError(
            f"{len(source)} batches of source logits and {len(adapted)} of adapted ones; they must"
            " belong to the same images"
        )
    for one, other in zip(source, adapted, strict=True):
        estimator.update(one, other)
    return estimator.result()


# ---- checks ----------------------------------------------------------------------------------


def _check(source: Tensor, adapted: Tensor, classes: int | None, prior: Array | None) -> None:
    if source.dim() != 2 or source.shape != adapted.shape or source.shape[1] < 2:
        raise InputError(
            f"logits of shape {tuple(source.shape)} and {tuple(adapted.shape)}; two of the same"
            " shape (images, classes) are expected"
        )
    if classes not in (None, source.shape[1]):
        raise InputError(f"{source.shape[1]} classes, but the batches before had {classes}")
    if prior is not None and len(prior) != source.shape[1]:
        raise InputError(f"prior has {len(prior)} shares, the logits {source.shape[1]} classes")
    if not bool(source.isfinite().all()):
        raise InputError("the source model's logits are not finite: there is nothing to hold on to")


def _shares(prior: Sequence[float]) -> Array:
    shares = np.asarray(prior, dtype=np.float64)
    if shares.ndim != 1 or not np.isfinite(shares).all() or (shares < 0).any() or not shares.sum():
        raise ConfigError(f"prior={prior!r}; a share >= 0 for each class is expected")
    return np.asarray(shares / shares.sum())
