"""A figure as data: what it shows in words and numbers, and how to paint it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .canvas import Canvas

Value = str | float | None
WIDTH = 420.0  # px of the viewBox: text stays readable when it is shown 360 px wide


@dataclass(frozen=True)
class Figure:
    """One figure. `rows` are the numbers behind it: the table fallback, and a CSV."""

    name: str  # unique file stem [a-z0-9-]
    title: str
    caption: str  # what is shown, on what data, and how to read it
    alt: str  # the finding in a sentence, for screen readers
    group: str  # "paper" or "runs"
    header: list[str]
    rows: list[list[Value]]
    series: list[str]  # what can be toggled: class "series s<i>" in the SVG
    paint: Callable[[Canvas], None] = field(repr=False, compare=False)
    height: float = 280.0  # of a width of WIDTH
    cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)


def slug(*parts: object) -> str:
    """Part of a file name."""
    joined = "-".join(str(part) for part in parts if part)
    return re.sub(r"[^a-z0-9]+", "-", joined.lower()).strip("-")[:60].strip("-") or "x"


def stem(kind: str, analysis: dict[str, Any]) -> str:
    """File name of a figure of an analysis, which is usually called after its kind already."""
    return f"{kind}-{slug(str(analysis['name']).removeprefix(str(analysis['kind'])))}"


def plain(text: object, longest: int = 40) -> str:
    """Names come from anywhere: one line without control characters, not too long."""
    line = "".join(c if c.isprintable() else "·" for c in str(text))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def count(number: int, word: str) -> str:
    return f"{number:,} {word}" + ("" if number == 1 else "es" if word.endswith("ch") else "s")
