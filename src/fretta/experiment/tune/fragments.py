"""The chosen setting as a piece of a suite."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ...errors import ConfigError, StoreError
from .rules import CLAIMS, Rule
from .search import Result


def fragment(result: Result) -> str:
    """TOML text: one [[methods]] entry, to be appended to a suite.

    JSON writes numbers, text, true, false and lists of them as TOML does.
    """
    best, start = result.best, result.trials[0]
    measure = "label-free score" if result.rule is Rule.LABEL_FREE else "mean accuracy"
    untuned = "failed" if start.score is None else f"{start.score:.4f}"
    seeds = ", ".join(map(str, result.seeds))
    collapsed = sum(t.collapsed for t in result.trials)
    notes = [
        f"{result.title}, tuned on the suite {result.suite!r}",
        f"rule: {result.rule}: {CLAIMS[result.rule]}",
        *(f"judged on {text}" for text in result.judged_on),
        f"score: {result.score:.4f} ({measure}); before tuning: {untuned} ({start.text})",
        f"trials: {len(result.trials)} ({result.search} over {', '.join(result.space)};"
        f" seeds {seeds}), {len(result.failed)} failed, {collapsed} collapsed",
    ]
    if best.collapsed:
        notes.append("the chosen trial collapsed in some domain: nothing that was tried is good")
    if best.number == start.number:
        notes.append("nothing was better than the setting the search began with")
    entry = {"name": result.method, "label": result.label, **best.settings}
    lines = [*(f"# {' '.join(note.split())}" for note in notes), "[[methods]]"]
    for key, value in entry.items():
        try:
            lines.append(f"{key} = {json.dumps(value, ensure_ascii=False, allow_nan=False)}")
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{key}={value!r} cannot be written into a suite") from error
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
