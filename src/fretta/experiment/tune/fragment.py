"""The chosen setting as a piece of a suite, which says how it was chosen."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from ...errors import ConfigError, StoreError
from .values import Result


def fragment(result: Result) -> str:
    """TOML text: one [[methods]] entry, to be appended to a suite."""
    best, before = result.best, result.trials[0]
    collapsed = sum(t.collapsed for t in result.trials)
    untuned = "failed" if before.score is None else f"{before.score:.4f}"
    seeds = ", ".join(map(str, result.seeds))
    notes = [
        f"{result.title}, tuned on the suite {result.suite!r}",
        f"rule: {result.rule.claim}",
        *(f"judged on {words}" for words in result.judged_on),
        (
            f"score: {result.score:.4f} ({result.rule.measure}); before tuning: {untuned}"
            f" ({before.text})"
        ),
        (
            f"trials: {len(result.trials)} ({result.search} over {', '.join(result.space)};"
            f" seeds {seeds}), {len(result.failed)} failed, {collapsed} collapsed"
        ),
    ]
    if best.collapsed:
        notes.append("the chosen trial collapsed in some domain: nothing that was tried is good")
    if best.number == before.number:
        notes.append("nothing was better than the setting the search began with")
    entry = {"name": result.method, "label": result.label, **best.settings}
    lines = [f"# {' '.join(note.split())}" for note in notes]
    lines += ["[[methods]]", *(f"{key} = {_toml(value)}" for key, value in entry.items())]
    return "\n".join(lines) + "\n"


def write_fragment(result: Result, path: str | os.PathLike[str]) -> Path:
    """The same, as a file; replaces what is there."""
    file = Path(path)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(fragment(result), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {str(file)!r}: {error.strerror or error}") from error
    return file


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    raise ConfigError(f"{value!r} cannot be written into a suite; numbers, text and lists can")
