"""Pages of the API: every public name once, for mkdocstrings to fill in."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import fretta
from fretta.methods import REGISTRY


def titles() -> dict[str, str]:
    found = {"api/index.md": "Overview", "api/fretta.md": "fretta"}
    return found | {f"api/{name}.md": f"fretta.{name}" for name in _modules()}


def pages() -> dict[str, str]:
    seen: dict[str, str] = {}  # where it is defined -> its page
    texts = {"api/fretta.md": _page("fretta", dict(_names(fretta)), "api/fretta.md", seen)}
    for name, module in _modules().items():
        uri = f"api/{name}.md"
        texts[uri] = _page(f"fretta.{name}", dict(_names(module)), uri, seen)
    rows = ["| name | what it is |", "|---|---|"]
    for name, value in _names(fretta):
        rows.append(f"| [`fretta.{name}`](fretta.md#{_home(value)}) | {_first_line(value)} |")
    for name, module in _modules().items():
        rows.append(f"| [`fretta.{name}`]({name}.md) | {_first_line(module)} |")
    intro = "Names that stay. Everything else may change between versions."
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


def _home(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _first_line(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0]


def _page(title: str, names: dict[str, Any], uri: str, seen: dict[str, str]) -> str:
    parts, elsewhere = [f"# {title}"], []
    if title == "fretta":
        parts.append("`fretta.adapt(...)` and `fretta.Adapter(...)` are the same class.")
    for name, value in names.items():
        home, key = _home(value), getattr(value, "key", None)
        if key in REGISTRY:
            elsewhere.append(f"[`{name}`](../methods/{key}.md)")
        elif home not in seen:
            seen[home] = uri
            parts.append(f"::: {home}\n    options:\n      heading: {title}.{name}")
        elif seen[home] != uri:
            elsewhere.append(f"[`{name}`]({seen[home].removeprefix('api/')}#{home})")
    if elsewhere:
        parts.insert(1, "On other pages: " + ", ".join(elsewhere) + ".")
    return "\n\n".join(parts) + "\n"
