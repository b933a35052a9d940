"""The options of one `fretta adapt`."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..experiment.settings import GUARDS, ModelSettings

STDIN = "-"
# They do not change the result, or are identified by content: free to differ on resume.
FREE = ("out", "workers", "skip_unreadable", "checkpoint_seconds", "data", "root", "weights")


@dataclass(frozen=True)
class AdaptOptions(ModelSettings):
    """Everything the user gives. `data` is a folder, a text file of paths, or "-"."""

    data: str
    out: Path
    _: KW_ONLY
    shuffle: bool | None = None  # None: if the images lie in several folders
    seed: int = 0
    limit: int | None = None
    statistics: int = 512  # images for the running statistics of the written weights
    skip_unreadable: bool = False
    root: Path | None = None
    allow_outside: bool = False
    null: bool = False
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

    def to_json(self) -> dict[str, Any]:
        return {
            name: str(v) if isinstance(v, os.PathLike) else list(v) if isinstance(v, tuple) else v
            for name, v in asdict(self).items()
        }

    def identity(self) -> dict[str, Any]:
        """The options that a resumed run must share."""
        return {name: v for name, v in self.to_json().items() if name not in FREE}
