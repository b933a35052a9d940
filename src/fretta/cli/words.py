"""The library's errors speak Python (`source=`); the command line speaks options (`--source`)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

import typer

from ..errors import FrettaWarning
from .app import app

_GIVEN = re.compile(
    r"(?<![^\s(])([a-z]\w*)=('[^']*'|\"[^\"]*\"|\([^()]*\)|\[[^][]*\]|\{[^{}]*\}|[^\s,;:()]*)"
)
_OTHER_NAMES = {"domains": "domain", "optuna_trials": "optuna"}


def in_options(message: str, arguments: Sequence[str]) -> str:
    """`name=value` as what is typed for it in this command: `--name value`, `--set name=value`.

    A name that is a hyper-parameter of a method the message speaks of before is one; else it is
    the option of that name, else a hyper-parameter of any method. Other names stay as they are.
    """
    options = _options(arguments)
    if "model" not in options and message.startswith("suite "):
        return message  # it speaks of the file

    def typed(found: re.Match[str]) -> str:
        name, value = found.groups()
        option = options.get(_OTHER_NAMES.get(name, name))
        owners = _owners(name) if "set" in options else set()
        spoken_of = owners & set(re.findall(r"[a-z-]+", message[: found.start()]))
        if owners and (spoken_of or option is None):
            return f"--set {name}={_word(value) or '...'}"
        if option is None:
            return found[0]
        flag = option.is_flag and value in ("True", "")
        return f"{option.opts[-1]} {'' if flag else _word(value)}".rstrip()

    return _GIVEN.sub(typed, message)


def show_warnings_in_a_line(arguments: Sequence[str]) -> None:
    """From now on fretta's warnings end as its errors do: one line, in the words of the options."""
    usual = warnings.formatwarning

    def formatted(message: Any, category: type[Warning], *more: Any, **named: Any) -> str:
        if issubclass(category, FrettaWarning):
            return f"warning: {in_options(str(message), arguments)}\n"
        return usual(message, category, *more, **named)

    warnings.formatwarning = formatted


def _options(arguments: Sequence[str]) -> dict[str, Any]:
    """The options of the command that these arguments call, by name."""
    command: Any = typer.main.get_command(app)
    for argument in arguments:
        command = getattr(command, "commands", {}).get(argument, command)
    long = [p for p in command.params if p.opts and p.opts[-1].startswith("--")]
    return {p.opts[-1][2:].replace("-", "_"): p for p in long}


def _owners(name: str) -> set[str]:
    """The methods that have a hyper-parameter of this name."""
    from ..methods import REGISTRY

    return {key for key, method in REGISTRY.items() if name in method.field_names()}


def _word(value: str) -> str:
    """A Python value as one types it: 'fc' is fc, (0.5, 0.5) is 0.5,0.5, '...' is NAME."""
    plain = value.strip("'\"()[]{}")
    if plain == "...":
        return "NAME" if value[0] in "'\"" else "..."
    return plain.replace(", ", ",") if value[:1] in ("(", "[") else plain
