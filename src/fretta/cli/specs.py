"""What is typed on the command line as the plain values that suites are made of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from .app import say

if TYPE_CHECKING:
    from torch import nn

    from ..experiment.records import Job
    from ..experiment.suite import Suite
    from ..models.opening import OpenedModel
    from ..models.preprocessing import Preprocessing

Where = Annotated[str, typer.Option("--store", help="Folder or fsspec URL of the results.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Worker processes on this machine.")]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Torch threads per run; default: the cores divided by --jobs."),
]
MODEL = (
    "timm:NAME, torchvision:NAME, hf:FOLDER, module:factory; digits; or a weights file with card."
)
Model = Annotated[str, typer.Option(help=MODEL)]
Weights = Annotated[
    str | None, typer.Option(help="A .safetensors file, or a torch file of tensors only.")
]
NumClasses = Annotated[int | None, typer.Option(min=1, help="Size of the head.")]
Pretrained = Annotated[
    bool, typer.Option("--pretrained", help="The library's own weights (needs a network).")
]
Head = Annotated[str | None, typer.Option(help="Name of the head, if it is not found.")]
Size = Annotated[int | None, typer.Option(min=1, help="Image size; else what the model says.")]
Mean = Annotated[str | None, typer.Option(help="0.485,0.456,0.406; else what the model says.")]
Std = Annotated[str | None, typer.Option(help="0.229,0.224,0.225; else what the model says.")]
Prior = Annotated[
    str | None,
    typer.Option(
        help="Shares of the classes, where they are uneven and known: cat=0.8,dog=0.2, or a"
        " CSV or JSON file. Classes that are not named share the rest."
    ),
]
Fit = Annotated[str | None, typer.Option(help="crop (center) or squash; else what the model says.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, ...; default: cuda if there is one.")]


def numbers(text: str, option: str = "") -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(
            f"{option} {text!r} is not a list of numbers such as 0.5,0.5,0.5".lstrip()
        ) from error


def find_input(
    opened: OpenedModel, size: int | None, mean: str | None, std: str | None, fit: str | None
) -> Preprocessing:
    """How images become the input of the model, given what the options say."""
    from ..models.preprocessing import find_preprocessing

    return find_preprocessing(
        opened.net,
        opened.spec,
        size=size,
        mean=mean and tuple(numbers(mean, "--mean")),
        std=std and tuple(numbers(std, "--std")),
        fit=fit,
    )


def data_spec(
    name: str, corruption: str | None, severity: int, net: nn.Module, how: Preprocessing
) -> dict[str, Any]:
    """The data set, read as the model takes its images; a folder is labeled by its names."""
    from ..data.datasets import reading_options

    folder = Path(name).is_dir()
    spec: dict[str, Any] = {"name": "folder" if folder else name}
    spec |= reading_options(spec["name"], how)
    if folder:
        spec |= _classes(Path(name), net, how)
    if corruption is not None:
        spec |= {"corruption": corruption, "severity": severity}
    return spec


def _classes(folder: Path, net: nn.Module, how: Preprocessing) -> dict[str, Any]:
    """Class names of the model, in their order, if the folders are called by them."""
    from ..data.domainsets import class_folders
    from ..experiment.case import count_classes
    from ..models.labels import find_labels

    found = {name.casefold() for name in class_folders(folder)}
    labels = find_labels(net, count_classes(net, how), None)
    for names in (labels.names, labels.aliases) if labels.known else ():
        known = {name.casefold() for name in names}
        if found <= known and len(known) == len(names):
            return {"classes": list(names)}
    return {}


def source_spec(name: str | None, how: Preprocessing) -> dict[str, Any] | None:
    from ..data import dataset_options
    from ..data.datasets import reading_options

    if name is None:
        return None
    training = {"split": "train"} if "split" in dataset_options(name) else {}
    return {"name": name, **training, **reading_options(name, how)}


def jobs_of(suite: Suite, root: Path | str | None) -> list[Job]:
    """The runs of a suite; says how the images of its cases are prepared."""
    told: dict[str, list[str]] = {}
    jobs = suite.jobs(root, lambda case, images: told.setdefault(images, []).append(case))
    for text, cases in told.items():
        say(f"images  {text}" + (f": {', '.join(cases)}" if len(told) > 1 else ""))
    return jobs


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
    from ..methods import find_method, list_methods

    if not names:
        raise ConfigError(f"{option} names no method; choose from {', '.join(list_methods())}")
    for name in names:
        try:
            find_method(name)
        except ConfigError as error:
            raise ConfigError(f"{option}: {error}") from error
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
