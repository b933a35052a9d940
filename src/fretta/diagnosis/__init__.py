"""What changed, before anything is adapted: `fretta.diagnose` and `fretta diagnose`.

diagnosis = fretta.diagnose(model, loader)
print(diagnosis)
diagnosis.advice[0].kind  # "adapt", "do-not-adapt", ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..parts.classifier import Classifier
from ..prepare import source_batches, unwrapped
from .advice import Advice, recommend
from .facts import Facts, Files, Outputs
from .measure import Pictures, measure
from .moments import LayerShift
from .pictures import Moved

__all__ = ["Advice", "Diagnosis", "Facts", "Files", "LayerShift", "Outputs", "diagnose"]

BATCH = 64  # images that are looked at together


@dataclass(frozen=True)
class Diagnosis:
    """What was measured and what follows from it; `print` it."""

    facts: Facts
    names: list[str] = field(default_factory=list)  # of the classes
    sheet: list[Moved] = field(default_factory=list)  # the images that moved most

    @property
    def advice(self) -> list[Advice]:
        return recommend(self.facts, self.names)

    def __str__(self) -> str:
        from .page import lines

        return "\n".join(lines(self))

    def to_json(self) -> dict[str, Any]:
        return {
            "advice": [vars(advice) for advice in self.advice],
            "facts": self.facts.to_json(),
            "classes": self.names,
            "moved_most": [{"name": m.name, "distance": m.distance} for m in self.sheet],
        }


def diagnose(
    model: nn.Module,
    images: Tensor | Iterable[Any],
    *,
    source: Iterable[Any] | None = None,
    batch_size: int = BATCH,
    prior: Sequence[float] | None = None,
    names: Sequence[str] = (),
    head: str | None = None,
) -> Diagnosis:
    """What changed between the images a model was trained on and these.

    images      a tensor, or batches of images or of (images, labels), whose labels are ignored;
                preprocessed as in training
    source      the same for some source images; a model without batch norm needs them
    batch_size  the one to adapt with; how the images come here does not matter, but 64 at a time
                tell more than a few
    prior       the share of every class, where it is known
    """
    net = unwrapped(model)
    given = None if prior is None else [float(share) for share in prior]
    facts, _ = measure(
        net,
        (Pictures(x) for x in _batches(images, net)),
        source=None if source is None else _batches(source, net),
        batch_size=batch_size,
        head=head,
        prior=given,
    )
    return Diagnosis(facts, list(names))


def _batches(images: Tensor | Iterable[Any], net: nn.Module) -> Iterator[Tensor]:
    given = images.split(BATCH) if isinstance(images, Tensor) else images
    return source_batches(given, Classifier(net))
