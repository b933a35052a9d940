"""`fretta.evaluate`: accuracy and calibration of an adapter along a DataLoader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..adapter import Adapter
from ..errors import ConfigError, InputError
from ..parts.losses import entropy
from ..prepare import predicted_classes
from .loop import Item, Step, labeled, stream_through
from .metrics import count_classes, joined, overall
from .records import Outcome


@dataclass(frozen=True)
class Evaluation:
    """Of the predictions made on the way. Shares are in [0, 1]."""

    accuracy: float
    accuracy_macro: float  # every class counts the same
    ece: float | None  # expected calibration error, 15 bins; None if logits are not finite
    images: int
    seconds_per_batch: float  # the median
    per_class: list[dict[str, Any]]  # class, images, accuracy, predicted

    def __str__(self) -> str:
        ece = "–" if self.ece is None else f"{self.ece:.1%}"
        lines = [
            f"accuracy {self.accuracy:.1%} (mean over classes {self.accuracy_macro:.1%}), ECE"
            f" {ece}, {self.images:,} images, {1000 * self.seconds_per_batch:.0f} ms/batch"
        ]
        width = max(len(str(row["class"])) for row in self.per_class)
        for row in self.per_class:
            right = "–" if row["accuracy"] is None else f"{row['accuracy']:.1%}"
            lines.append(
                f"  {row['class']!s:{width}}  {right:>6} of {row['images']:,} images, predicted"
                f" {row['predicted']:,} times"
            )
        return "\n".join(lines)


def evaluate(
    adapter: Adapter, loader: Iterable[Any], *, class_names: Sequence[str] | None = None
) -> Evaluation:
    """Adapt along a DataLoader of (images, labels) and measure the predictions made on the way.

    Labels meet predictions here and never enter the adapter. Images must be preprocessed as in
    training; they are moved to the model's device.
    """
    if not isinstance(adapter, Adapter):
        raise ConfigError(
            f"adapter is a {type(adapter).__name__}; wrap the model: fretta.adapt(model, 'source')"
            " predicts as it is"
        )
    outcomes: list[Outcome] = []
    items = labeled(loader, adapter.model.device)
    for item, steps in stream_through({"adapter": adapter}, items):
        classes = steps["adapter"].logits.shape[1]
        outcomes.append(outcome_of(item, steps["adapter"]))
    if not outcomes:
        raise InputError("the loader is empty: there is nothing to evaluate")
    found = overall(outcomes, [{"accuracy": 0.0}])
    samples = joined(outcomes)
    seen = count_classes(samples.label, classes)
    right = count_classes(samples.label[samples.right], classes)
    predicted = count_classes(samples.predicted, classes)
    names = list(range(classes)) if class_names is None else list(class_names)
    if len(names) != classes:
        raise InputError(f"class_names has {len(names)} names, the model {classes} classes")
    return Evaluation(
        accuracy=found["accuracy"],
        accuracy_macro=found["accuracy_macro"],
        ece=found["ece"],
        images=found["images"],
        seconds_per_batch=found["seconds_per_batch"],
        per_class=[
            {
                "class": names[k],
                "images": int(seen[k]),
                "accuracy": float(right[k] / seen[k]) if seen[k] else None,
                "predicted": int(predicted[k]),
            }
            for k in range(classes)
        ],
    )


def outcome_of(item: Item, step: Step) -> Outcome:
    """Labels meet logits."""
    y, classes = item.y, step.logits.shape[1]
    if y is None:
        raise InputError("a batch without labels cannot be evaluated")
    if y.min() < 0 or y.max() >= classes:
        raise InputError(
            f"labels from {int(y.min())} to {int(y.max())}, but the model has {classes} classes"
        )
    log_p = step.logits.log_softmax(1)
    domains = np.zeros(len(y), np.int64) if item.domains is None else item.domains
    return Outcome(
        number=item.number,
        domain=np.asarray(domains, dtype=np.int64),
        label=y.numpy(),
        predicted=predicted_classes(step.logits).numpy(),
        confidence=log_p.exp().amax(1).numpy(),
        nll=-log_p.gather(1, y[:, None])[:, 0].numpy(),
        entropy=entropy(step.logits).numpy(),
        seconds=step.seconds,
        pass_rate=step.pass_rate,
        loading=item.loading,
    )
