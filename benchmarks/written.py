"""The result of a benchmark as a file: the numbers, and what made them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fretta.experiment.provenance import provenance


def write(path: str | Path | None, result: Mapping[str, Any], compact: bool = False) -> None:
    """As JSON, rounded to seven digits; nothing where no path is given."""
    if path is None:
        return
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    content = {**_rounded(result), "provenance": provenance()}
    target.write_text(json.dumps(content, indent=None if compact else 1) + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, Mapping):
        return {str(k): _rounded(v) for k, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, list | tuple) else value
