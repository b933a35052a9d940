"""A figure as data: what it shows in words and numbers, and how to paint it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import takewhile
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


def short_names(names: Iterable[str], longest: int) -> dict[str, str]:
    """Each name in at most so many letters, no two alike.

    Of names that would be cut to the same text, the words they begin with in common are left out;
    what is still the same is numbered.
    """
    long = {name: name for name in names}
    for same in _alike({name: plain(name, longest) for name in long}):
        words = {name: name.split(" ") for name in same}
        columns = zip(*words.values(), strict=False)
        start = len(list(takewhile(lambda column: len(set(column)) == 1, columns)))
        long |= {name: "…" + " ".join(words[name][start:]) for name in same if start}
    cut = {name: plain(text, longest) for name, text in long.items()}
    still = [name for same in _alike(cut) for name in same]
    for number, name in enumerate(still, 1):
        cut[name] = f"{plain(long[name], longest - len(str(number)) - 1)} {number}"
    return cut


def _alike(cut: dict[str, str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for name, text in cut.items():
        groups.setdefault(text, []).append(name)
    return [same for same in groups.values() if len(same) > 1]


def count(number: int, word: str) -> str:
    return f"{number:,} {word}" + ("" if number == 1 else "es" if word.endswith("ch") else "s")
