"""What one `fretta adapt` does: plain values, and which of them a resumed run must share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigError

GUARDS = ("rollback", "warn", "skip", "reset", "none")
# How fast and how carefully, not what: these may differ when a run is resumed.
FREE = ("out", "workers", "skip_unreadable", "checkpoint_seconds", "data", "root", "weights")


@dataclass(frozen=True)
class Plan:
    """Everything the user says. `data` is a folder, a text file of paths, or "-"."""

    model: str
    data: str
    out: Path
    method: str = "g-fret"
    weights: str | None = None
    num_classes: int | None = None
    pretrained: bool = False
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    guard: str = "rollback"
    batch_size: int = 64
    shuffle: bool | None = None  # None: if the images lie in several folders
    seed: int = 0
    limit: int | None = None
    labels: Path | None = None
    size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    fit: str | None = None
    alpha: str = "white"
    head: str | None = None
    source: Path | None = None
    compare_source: bool = False
    prior: Mapping[str, float] | None = None  # class -> share or count, for the verdict
    statistics: int = 512  # images for the running statistics of the exported model
    skip_unreadable: bool = False
    root: Path | None = None
    allow_outside: bool = False
    null: bool = False
    device: str | None = None
    workers: int = 2
    checkpoint_seconds: float = 10.0

    def __post_init__(self) -> None:
        if self.guard not in GUARDS:
            raise ConfigError(f"--guard {self.guard!r} is unknown; one of {', '.join(GUARDS)}")
        least = {"batch_size": 1, "workers": 1, "statistics": 1, "limit": 1, "seed": 0}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigError(f"--{name.replace('_', '-')} {value}; {low} or more is expected")

    def decisive(self) -> dict[str, Any]:
        """The values that decide the result, ready for JSON."""
        values = asdict(self)
        for name in FREE:
            values.pop(name)
        for name in ("labels", "source"):
            values[name] = None if values[name] is None else str(values[name])
        for name in ("mean", "std"):
            values[name] = None if values[name] is None else list(values[name])
        return values
