"""Checkpoints: everything a run needs to go on as if it had not stopped."""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import torch

from ..._util import replace_file
from ...errors import ConfigError, WeightsError


def checkpoint_path(out: str | os.PathLike[str]) -> Path:
    """`model.safetensors` is trained through `model.ckpt`, which goes when it is finished."""
    return Path(out).with_suffix(".ckpt")


def save_checkpoint(path: Path, state: dict[str, Any], settings: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    torch.save({**state, "settings": json.dumps(settings)}, buffer)
    replace_file(path, buffer.getvalue())


def load_checkpoint(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The state of a run with these settings. Never executes code from the file."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        seen = json.loads(state.pop("settings"))
    except (
        pickle.UnpicklingError,
        RuntimeError,
        EOFError,
        OSError,
        LookupError,
        AttributeError,
        TypeError,
        ValueError,
    ) as error:
        raise WeightsError(
            f"the checkpoint {str(path)!r} cannot be read ({str(error).splitlines()[0]}); remove "
            "it to train from the beginning"
        ) from error
    different = [
        f"{name}: {seen.get(name)!r} then, {settings.get(name)!r} now"
        for name in sorted(seen.keys() | settings.keys())
        if seen.get(name) != settings.get(name)
    ]
    if different:
        raise ConfigError(
            f"the checkpoint {str(path)!r} belongs to another run: {'; '.join(different)}. Resume "
            "with the same settings, or remove it to train from the beginning"
        )
    found: dict[str, Any] = state
    return found
