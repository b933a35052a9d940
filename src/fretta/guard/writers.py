"""Callbacks that write health records: lines of JSON, and TensorBoard (extra)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Self

from ..errors import MissingExtraError
from .health import Health


class _Writer:
    def close(self) -> None:
        """Write what is left and close the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class JsonlWriter(_Writer):
    """One line of JSON per batch, on disk as soon as the batch is done. Appends to a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] | None = self.path.open("a", encoding="utf-8")

    def __call__(self, health: Health) -> None:
        if self._file is None:
            raise ValueError(f"{str(self.path)!r} is closed; make a new JsonlWriter to go on")
        self._file.write(json.dumps(health.to_json(), allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class TensorBoardWriter(_Writer):
    """Every number of every batch as a scalar `health/...`; actions of the guard as text."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError as error:
            raise MissingExtraError("tensorboard", "tensorboard", "TensorBoardWriter") from error
        self._writer = SummaryWriter(str(folder))

    def __call__(self, health: Health) -> None:
        for name, value in health.to_json().items():
            if name != "batch" and isinstance(value, int | float):
                self._writer.add_scalar(f"health/{name}", value, health.batch)
        if health.action:
            text = f"{health.action}: {health.reason}"
            self._writer.add_text("health/guard", text, health.batch)

    def close(self) -> None:
        self._writer.close()
