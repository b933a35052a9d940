"""What is typed on the command line as the plain values that suites are made of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ConfigError

Where = Annotated[str, typer.Option("--store", help="Folder or fsspec URL of the results.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Worker processes on this machine.")]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Torch threads per run; default: the cores divided by --jobs."),
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, ...; default: cuda if there is one.")]


def numbers(text: str, option: str = "") -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(
            f"{option} {text!r} is not a list of numbers such as 0.5,0.5,0.5".lstrip()
        ) from error


def model_spec(
    model: str,
    weights: str | None,
    num_classes: int | None,
    size: int | None,
    mean: str | None,
    std: str | None,
) -> dict[str, Any]:
    named = "spec" if ":" in model or weights is not None else "source"
    found: dict[str, Any] = {named: model, "weights": weights, "num_classes": num_classes}
    if named == "spec":
        found["size"] = size  # a card knows its own
    colours = {"mean": mean and numbers(mean, "--mean"), "std": std and numbers(std, "--std")}
    return {k: v for k, v in {**found, **colours}.items() if v is not None}


def data_spec(name: str, corruption: str | None, severity: int, size: int | None) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": "folder" if Path(name).is_dir() else name}
    if corruption is not None:
        spec |= {"corruption": corruption, "severity": severity}
    if size is not None:
        spec["size"] = size
    return spec


def source_spec(name: str | None, size: int | None) -> dict[str, Any] | None:
    from ..streams import dataset_options

    if name is None:
        return None
    options = dataset_options(name)
    training = {"split": "train"} if "split" in options else {}
    return {"name": name, **training, **({"size": size} if size and "size" in options else {})}


def settings_of(pairs: list[str]) -> dict[str, Any]:
    """lr=1e-3 as TOML would read it: numbers, booleans, or else a string."""
    import tomllib

    found: dict[str, Any] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise ConfigError(f"--set {pair!r}; write NAME=VALUE, such as lr=1e-3")
        try:
            found[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[name] = value
    return found


def known_methods(names: list[str], option: str = "--method") -> list[str]:
    """The names, once each of them is known: before any data or model is opened."""
    from ..methods import REGISTRY

    unknown = [name for name in names if name not in REGISTRY]
    if unknown or not names:
        seen = f" {', '.join(map(repr, unknown))} is unknown" if unknown else " names no method"
        raise ConfigError(f"{option}{seen}; choose from {', '.join(sorted(REGISTRY))}")
    return names


def check_file(path: Path | None, option: str) -> None:
    """Before the work: a file that cannot be written is no use after it."""
    if path is None:
        return
    folder = path.absolute().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"the folder {str(folder)!r} cannot be made: {error.strerror or error}"
    else:
        if path.is_dir():
            reason = "it is a folder; give the name of a file"
        elif not os.access(folder, os.W_OK):
            reason = f"the folder {str(folder)!r} is not writable"
        else:
            return
    raise ConfigError(f"{option} {str(path)!r} cannot be written: {reason}")
