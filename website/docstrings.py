"""Docstrings of this package for mkdocstrings: entries `name   text` become a list."""

from __future__ import annotations

import re
from typing import Any

import griffe

ENTRY = re.compile(r"^([\w*.()=]+(?:, [\w*.()=]+)*)\s{2,}(\S.*)$")


class Entries(griffe.Extension):
    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_list(obj.docstring.value)


def as_list(doc: str) -> str:
    lines: list[str] = []
    inside = False
    for line in doc.splitlines():
        entry = ENTRY.match(line)
        if entry:
            lines += [] if inside else [""]
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        elif inside and line.startswith("  "):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
        inside = bool(entry) or (inside and line.startswith("  "))
    return "\n".join(lines)
