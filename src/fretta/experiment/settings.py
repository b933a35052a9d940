"""What `fretta adapt` and `fretta serve` are told about the model and how it adapts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..adapter import Adapter
    from .case import Case

GUARDS = ("rollback", "warn", "skip", "reset", "none")


@dataclass(frozen=True)
class ModelSettings:
    """The model, how images become its input, and how it adapts."""

    model: str
    _: KW_ONLY
    method: str = "auto"
    weights: str | None = None
    num_classes: int | None = None
    pretrained: bool = False
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    guard: str = "rollback"
    labels: str | Path | None = None
    size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    fit: str | None = None
    alpha: str = "white"
    head: str | None = None
    source: str | Path | None = None  # folder of source images
    device: str | None = None
    prior: Mapping[str, float] | None = None  # class -> share or count, for the verdict
    compare_source: bool = False  # source model on every image, not one in eight
    batch_size: int = 64

    def open_case(self) -> Case:
        """Model, labels and preprocessing."""
        from .case import open_case

        names = ("weights", "num_classes", "pretrained", "head", "size", "mean", "std", "fit")
        given = {name: getattr(self, name) for name in (*names, "labels", "source", "device")}
        return open_case(self.model, **given)

    def adapter(self, case: Case) -> Adapter:
        guard = None if self.guard == "none" else self.guard
        size = self.batch_size
        return case.adapter(self.method, guard=guard, batch_size=size, **self.hyperparameters)
