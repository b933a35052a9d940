"""Errors of the library name Python arguments (`source=`); on the command line, options."""

from __future__ import annotations

import re
import warnings
from typing import Any

import typer

from ..errors import FrettaWarning
from .app import app

ARGUMENT = re.compile(  # name=, and a value in quotes or brackets or without blanks
    r"(?<![^\s(])([a-z]\w*)=('[^']*'|\"[^\"]*\"|\([^()]*\)|\[[^][]*\]|\{[^{}]*\}|[^\s,;:()]*)"
)
OTHER_NAMES = {"domains": "domain", "optuna_trials": "optuna"}


def name_options(message: str, arguments: list[str]) -> str:
    """`name=value` as it is typed for this command: `--name value` or `--set name=value`.

    Hyper-parameters of a method that the message has named come first, then options, then
    hyper-parameters of any method. Other names stay as they are.
    """
    options = _options(arguments)
    if "model" not in options and message.startswith("suite "):
        return message  # about a file

    def typed(match: re.Match[str]) -> str:
        name, value = match.groups()
        option = options.get(OTHER_NAMES.get(name, name))
        methods = _methods_with(name) if "set" in options else set()
        named = methods & set(re.findall(r"[a-z-]+", message[: match.start()]))
        if named or (methods and option is None):
            return f"--set {name}={_typed_value(value) or '...'}"
        if option is None:
            skips = match[0] == "errors='skip'" and "skip_unreadable" in options
            return "--skip-unreadable" if skips else match[0]
        if option.multiple and value.startswith("["):
            return " ".join(
                f"{option.opts[-1]} {_typed_value(v.strip())}" for v in value[1:-1].split(",")
            )
        if option.is_flag and value == "True":
            value = ""
        return f"{option.opts[-1]} {_typed_value(value)}".rstrip()

    return ARGUMENT.sub(typed, message)


def print_warnings_in_one_line(arguments: list[str]) -> None:
    """From now on, fretta's warnings are one line that names options, as its errors are."""
    default = warnings.formatwarning

    def formatwarning(message: Any, category: type[Warning], *more: Any, **named: Any) -> str:
        if issubclass(category, FrettaWarning):
            return f"warning: {name_options(str(message), arguments)}\n"
        return default(message, category, *more, **named)

    warnings.formatwarning = formatwarning


def _options(arguments: list[str]) -> dict[str, Any]:
    """The options of the command that these arguments call, by name."""
    command: Any = typer.main.get_command(app)
    for argument in arguments:
        command = getattr(command, "commands", {}).get(argument, command)
    long = [p for p in command.params if p.opts and p.opts[-1].startswith("--")]
    return {p.opts[-1][2:].replace("-", "_"): p for p in long}


def _methods_with(hyperparameter: str) -> set[str]:
    from ..methods import REGISTRY

    return {key for key, method in REGISTRY.items() if hyperparameter in method.field_names()}


def _typed_value(value: str) -> str:
    """'fc' is typed fc, (0.5, 0.5) is typed 0.5,0.5, and '...' stands for a name."""
    if value in ("'...'", '"..."'):
        return "NAME"
    text = value.strip("'\"()[]{}")
    return text.replace(", ", ",") if value[:1] in ("(", "[") else text
