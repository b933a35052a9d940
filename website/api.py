"""Pages of the API: every public name once, and what the pages import besides, for mkdocstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import fretta
from fretta.methods import REGISTRY

IMPORT = re.compile(r"^from (fretta[\w.]*) import ([\w, ]+)$", re.M)
INSIDE, INSIDE_TITLE = "api/inside.md", "Inside the package"


def titles() -> dict[str, str]:
    found = {"api/index.md": "Overview", "api/fretta.md": "fretta"}
    found |= {f"api/{name}.md": f"fretta.{name}" for name in _modules()}
    return {**found, INSIDE: INSIDE_TITLE}


def pages(root: Path) -> dict[str, str]:
    seen: dict[str, str] = {}  # where it is defined -> its page
    texts = {"api/fretta.md": _page("fretta", dict(_names(fretta)), "api/fretta.md", seen)}
    for name, module in _modules().items():
        uri = f"api/{name}.md"
        texts[uri] = _page(f"fretta.{name}", dict(_names(module)), uri, seen)
    imported = {name: value for name, value in _imported(root) if _home(value) not in seen}
    texts[INSIDE] = _page(INSIDE_TITLE, dict(sorted(imported.items())), INSIDE, seen)
    rows = ["| name | what it is |", "|---|---|"]
    for name, value in _names(fretta):
        rows.append(f"| [`fretta.{name}`](fretta.md#{_home(value)}) | {_first_line(value)} |")
    for name, module in _modules().items():
        rows.append(f"| [`fretta.{name}`]({name}.md) | {_first_line(module)} |")
    rows.append(f"| [{INSIDE_TITLE}](inside.md) | What the pages import from other modules. |")
    intro = "Names that stay, but for those inside the package. Everything else may change, too."
    return {"api/index.md": "\n".join(["# API", "", intro, "", *rows, ""]), **texts}


def _modules() -> dict[str, ModuleType]:
    values = {name: getattr(fretta, name) for name in fretta.__all__}
    return {name: value for name, value in values.items() if isinstance(value, ModuleType)}


def _names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Public classes and functions."""
    own = [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
    for name in getattr(module, "__all__", [n for n in own if not n.startswith("_")]):
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            yield name, value


def _imported(root: Path) -> Iterator[tuple[str, Any]]:
    """Classes and functions that README and docs/ import, under the names they write."""
    for page in [root / "README.md", *sorted(root.glob("docs/*.md"))]:
        for module, names in IMPORT.findall(page.read_text(encoding="utf-8")):
            for name in names.split(", "):
                value = getattr(import_module(module), name)
                if inspect.isclass(value) or inspect.isfunction(value):
                    yield f"{module}.{name}", value


def _home(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _first_line(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0]


def _page(title: str, names: dict[str, Any], uri: str, seen: dict[str, str]) -> str:
    parts, elsewhere = [f"# {title}"], []
    if title == "fretta":
        parts.append("`fretta.adapt(...)` and `fretta.Adapter(...)` are the same class.")
    if title == INSIDE_TITLE:
        parts.append("What README and docs import from other modules. It may change.")
    for name, value in names.items():
        home, key = _home(value), getattr(value, "key", None)
        if key in REGISTRY:
            elsewhere.append(f"[`{name}`](../methods/{key}.md)")
        elif home not in seen:
            seen[home] = uri
            heading = name if title == INSIDE_TITLE else f"{title}.{name}"
            parts.append(f"::: {home}\n    options:\n      heading: {heading}")
        elif seen[home] != uri:
            elsewhere.append(f"[`{name}`]({seen[home].removeprefix('api/')}#{home})")
    if elsewhere:
        parts.insert(1, "On other pages: " + ", ".join(elsewhere) + ".")
    return "\n\n".join(parts) + "\n"
