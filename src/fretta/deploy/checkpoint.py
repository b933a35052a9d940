"""Where a run is: position, counts, and the adapter's state, in one file that is always whole."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from ..errors import StoreError
from .outputs import write_whole

FORMAT = 2
# What torch raises for files that are no checkpoints.
_BROKEN = (OSError, RuntimeError, ValueError, LookupError, EOFError, TypeError, struct.error)


def save(path: Path, facts: dict[str, Any], tensors: dict[str, Any]) -> None:
    """`facts` go as JSON: it keeps names with any bytes, which the restricted loader may not."""
    content = io.BytesIO()
    torch.save({"format": FORMAT, "facts": json.dumps(facts), **tensors}, content)
    write_whole(path, content.getvalue())


def load(path: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """(facts, tensors), or None where no checkpoint was reached."""
    if not path.is_file():
        return None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content.pop("format") != FORMAT:
            raise ValueError("another format")
        facts = json.loads(content.pop("facts"))
    except (*_BROKEN, UnpicklingError) as error:
        raise StoreError(
            f"the checkpoint {str(path)!r} cannot be read ({str(error).splitlines()[0]}); start"
            " anew with --force"
        ) from error
    return facts, content
