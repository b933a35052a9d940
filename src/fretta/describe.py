"""What `fretta info` prints of a method: read from its docstrings and class attributes."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Any

from .method import Method
from .methods import find_method

CLASSES = (10, 1000)  # numbers of classes to show defaults for
_ENTRY = re.compile(r"^(\w+(?:, \w+)*)\s{2,}(\S.*)$")


@dataclass
class Field:
    """One hyper-parameter."""

    name: str
    default: str
    meaning: str
    published: str = ""


@dataclass
class Description:
    key: str
    paper: str
    what: str
    loss: str
    needs: str
    cost: str
    fields: list[Field] = field(default_factory=list)
    variants: dict[str, str] = field(default_factory=dict)  # others than the default: how


def describe(name: str) -> Description:
    """A method by any name that `adapt` knows."""
    cls = find_method(name)
    module = inspect.getmodule(cls)
    what, _, rest = (inspect.getdoc(cls) or "").partition("\n\n")
    notes = [p for p in rest.split("\n\n") if not _entries(p) and ": see " not in p]
    needs = [need.value for need in sorted(cls.needs, key=lambda need: need.name)]
    when = f"predicts {cls.timing} the update" if cls.gradient else "no gradient"
    return Description(
        key=cls.key,
        paper=_text(inspect.getdoc(module) or ""),
        what=_text("\n\n".join([what, *notes])),
        loss=cls.loss or "-",
        needs="; ".join(needs) or "nothing but a classifier",
        cost=f"{cls.passes} per batch (F: forward, B: backward); {when}",
        fields=[
            Field(n, default, meaning(cls, n), cls.published.get(n, ""))
            for n, default in _defaults(cls, None).items()
        ],
        variants={v: _difference(cls, v) for v in cls.variants[1:]},
    )


def meaning(cls: type[Method], name: str) -> str:
    """What a docstring says of a hyper-parameter: that of the class, or of one it comes from."""
    for base in cls.__mro__:
        found = _entries(base.__dict__.get("__doc__") or "").get(name)
        if found:
            return found
    return ""


def _entries(doc: str) -> dict[str, str]:
    """name -> text, of lines `name   text`, whose text may go on in deeper lines."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in inspect.cleandoc(doc).splitlines():
        match = _ENTRY.match(line)
        if match:
            names = match[1].split(", ")
            found |= dict.fromkeys(names, match[2])
        elif names and line.startswith("    "):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        else:
            names = []
    return found


def _defaults(cls: type[Method], variant: str | None) -> dict[str, str]:
    """Its own hyper-parameters, and shared ones where they are not as in other methods."""
    given: dict[str, Any] = {} if variant is None else {"variant": variant}
    few, many = (cls(**given).resolved(n, quiet=True).hyperparameters() for n in CLASSES)
    shared = Method().hyperparameters()
    return {
        name: _shown(value)
        if value == many[name]
        else f"{_shown(value)} ({CLASSES[0]} classes), {_shown(many[name])} ({CLASSES[1]})"
        for name, value in few.items()
        if name not in shared or value != shared[name]
    }


def _difference(cls: type[Method], variant: str) -> str:
    ours, theirs = _defaults(cls, None), _defaults(cls, variant)
    values = [f"{n}={v}" for n, v in theirs.items() if n != "variant" and v != ours.get(n)]
    return "; ".join([*filter(None, [cls.differs.get(variant, "")]), *values])


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _text(doc: str) -> str:
    """Paragraphs, each in one line."""
    return "\n".join(" ".join(p.split()) for p in doc.split("\n\n") if p.strip())
