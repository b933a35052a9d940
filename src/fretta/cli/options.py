"""Options that commands share, declared once. A command takes them as dataclasses."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from ..errors import ConfigError

MODEL = (
    "timm:NAME, torchvision:NAME, hf:FOLDER, module:factory; digits; or a weights file with card."
)
# Options of several commands that do not take the whole group.
StoreFolder = Annotated[str, typer.Option("--store", help="Folder or fsspec URL of the results.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Worker processes on this machine.")]
Force = Annotated[bool, typer.Option("--force", help="Repeat what is there.")]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Torch threads per run; default: the cores divided by --jobs."),
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, ...; default: cuda if there is one.")]
DeviceName = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, ...")]
NumClasses = Annotated[int | None, typer.Option(min=1, help="Size of the head.")]
Pretrained = Annotated[
    bool, typer.Option("--pretrained", help="The library's own weights (needs a network).")
]
DataRoot = Annotated[
    Path | None, typer.Option("--data", "--root", help="Where the data is; else FRETTA_DATA.")
]
Domains = Annotated[list[str] | None, typer.Option(help="Only this domain (several times).")]
Severity = Annotated[
    list[float] | None,
    typer.Option(min=1, max=5, help="Of --corruption (several times: gradual); default: 5."),
]
BatchSize = Annotated[int, typer.Option(min=1, help="Images per batch.")]
LARGEST_SEED = 2**32 - 1  # that numpy takes
Seed = Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Of the order of the images.")]
Seeds = Annotated[
    list[int] | None, typer.Option(min=0, max=LARGEST_SEED, help="Seed (several times).")
]
Limit = Annotated[int | None, typer.Option(min=1, help="Images per domain.")]
Methods = Annotated[str, typer.Option(help="Names with commas between.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="Hyper-parameter, as lr=1e-3 (several times).")
]
Source = Annotated[
    str | None,
    typer.Option(
        help="Source images, for methods that need some: a data set; compare: also a folder, and"
        " where their labels are known they tell the shares of the classes."
    ),
]
SourceFolder = Annotated[
    Path | None,
    typer.Option(
        help="Folder of source images, for methods that need some; in folders named as classes"
        " they also tell the shares of the classes."
    ),
]
Labels = Annotated[
    Path | None,
    typer.Option(help="Class names: one per line, a JSON list, {number: name} or config.json."),
]
Prior = Annotated[
    str | None,
    typer.Option(
        help="Shares of the classes, if known: cat=0.8,dog=0.2, a CSV or JSON file, or uniform."
        " Classes that are not named share the rest."
    ),
]
SkipUnreadable = Annotated[
    bool, typer.Option("--skip-unreadable", help="Leave out files that cannot be read.")
]
Decoders = Annotated[int, typer.Option("--workers", min=1, help="Threads that decode images.")]
DataDecoders = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Threads that decode images (default: 2); for a data set, processes (default: none).",
    ),
]


@dataclass(frozen=True)
class ModelOptions:
    """The model, and how images become its input."""

    model: Annotated[str, typer.Option(help=MODEL)]
    weights: Annotated[
        str | None, typer.Option(help="A .safetensors file, or a torch file of tensors only.")
    ] = None
    num_classes: NumClasses = None
    head: Annotated[str | None, typer.Option(help="Name of the head, if it is not found.")] = None
    size: Annotated[
        int | None, typer.Option(min=1, help="Image size; else what the model says.")
    ] = None
    mean: Annotated[
        str | None, typer.Option(help="0.485,0.456,0.406; else what the model says.")
    ] = None
    std: Annotated[
        str | None, typer.Option(help="0.229,0.224,0.225; else what the model says.")
    ] = None
    fit: Annotated[
        str | None, typer.Option(help="crop (center) or squash; else what the model says.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        """As open_case takes them."""
        return {
            **vars(self),
            "mean": numbers(self.mean, "--mean") if self.mean else None,
            "std": numbers(self.std, "--std") if self.std else None,
        }


@dataclass(frozen=True)
class DataOptions:
    """The images, and the stream they make."""

    data: Annotated[
        str,
        typer.Option(
            help="A data set (pacs, digits, ...) or a folder of class folders; compare, diagnose:"
            " also any folder of images, or a file with a path per line."
        ),
    ]
    root: Annotated[
        Path | None,
        typer.Option(
            help="Where the data set is, else FRETTA_DATA; of a list, the folder its paths start"
            " from, else its own."
        ),
    ] = None
    labels: Labels = None

    def check(self) -> None:
        from ..data.datasets import check_name

        if not Path(self.data).exists():
            try:
                check_name(self.data)
            except ConfigError as error:
                raise ConfigError(
                    f"--data {self.data!r} is no folder or list of images that exists, nor a data"
                    f" set: {error}"
                ) from error


@dataclass(frozen=True)
class StreamOptions:
    corruption: Annotated[
        list[str] | None, typer.Option(help="Corrupt on the fly: all, fog, ... (several times).")
    ] = None
    order: Annotated[str, typer.Option(help="continual, independent, mixed, ...")] = "continual"
    batch_size: BatchSize = 64
    seed: Seed = 0
    limit: Annotated[int | None, typer.Option(min=0, help="Images per domain; 0: all.")] = None

    def corruptions(self) -> list[str]:
        """By name; `all` are the 15 of the benchmark, `extra` the 4 others."""
        from ..data.shift import corruption_names

        return list(corruption_names(self.corruption)) if self.corruption else []

    def shift(self, severity: list[float] | None) -> dict[str, Any]:
        """As open_dataset takes it."""
        if self.corruption is None:
            if severity:
                raise ConfigError(f"--severity {severity[0]:g} needs --corruption; give both")
            return {}
        levels = [int(level) if level.is_integer() else level for level in severity or [5.0]]
        return {
            "corruption": self.corruption[0] if len(self.corruption) == 1 else self.corruptions(),
            "severity": levels[0] if len(levels) == 1 else levels,
        }

    def protocol(self, domains: list[str] | None) -> dict[str, Any]:
        """As a suite writes it."""
        return {
            "order": self.order,
            "batch_size": self.batch_size,
            "seeds": [self.seed],
            **({"limit": self.limit} if self.limit else {}),
            **({"domains": domains} if domains else {}),
        }


@dataclass(frozen=True)
class MethodOptions:
    method: Annotated[list[str], typer.Option(help="Method (several times).")]
    set_: Set = None


@dataclass(frozen=True)
class AdaptationOptions:
    """How a model adapts to images that come, in `adapt` and `serve`."""

    method: Annotated[str, typer.Option(help="See `fretta list`.")] = "auto"
    set_: Set = None
    guard: Annotated[str, typer.Option(help="On harm: rollback, skip, reset, warn, or none.")] = (
        "rollback"
    )
    pretrained: Pretrained = False
    labels: Labels = None
    prior: Prior = None
    alpha: Annotated[
        str, typer.Option(help="Transparent pixels: on white, or drop (what lies below).")
    ] = "white"
    source: SourceFolder = None
    device: Device = None

    def arguments(self) -> dict[str, Any]:
        """As ModelSettings takes them."""
        from ..estimate.prior import read_prior

        values = dict(vars(self))
        values["hyperparameters"] = hyperparameters(values.pop("set_"))
        return {**values, "prior": None if self.prior is None else read_prior(self.prior)}


@dataclass(frozen=True)
class StoreOptions:
    """Where results are kept, and where they are computed."""

    store: StoreFolder = "results"
    threads: Threads = None
    device: Device = None


@dataclass(frozen=True)
class RunOptions(StoreOptions):
    jobs: Jobs = 1
    ray: Annotated[
        str | None,
        typer.Option(help="Run on Ray: auto or an address; alone or local: start it here."),
    ] = None
    force: Force = False


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """The function as a command: each parameter that is a dataclass becomes its fields.

    The default of such a parameter is an instance; its values are the defaults of the options.
    """
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[Parameter] = []

    def add(name: str, default: Any, annotation: Any) -> None:
        parameter = Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        parameters.append(parameter)

    for p in signature(function).parameters.values():
        group = hints[p.name]
        if not is_dataclass(group):
            add(p.name, p.default, group)
            continue
        groups[p.name] = group
        options = get_type_hints(group, include_extras=True)
        for field in fields(group):
            default = Parameter.empty if field.default is MISSING else field.default
            if p.default is not Parameter.empty:
                default = getattr(p.default, field.name)
            add(field.name, default, options[field.name])

    def command(**given: Any) -> None:
        filled = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        function(**given, **filled)

    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


# ---- values -------------------------------------------------------------------------------------


def numbers(text: str, option: str) -> tuple[float, ...]:
    """ "0.5,0.5" as numbers."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(
            f"{option} {text!r} is not a list of numbers such as 0.5,0.5,0.5"
        ) from error


def hyperparameters(pairs: list[str] | None) -> dict[str, Any]:
    """lr=1e-3 as TOML reads it: numbers, booleans, or else a string."""
    import tomllib

    found: dict[str, Any] = {}
    for pair in pairs or []:
        name, separator, value = pair.partition("=")
        if not separator:
            raise ConfigError(f"--set {pair!r}; write NAME=VALUE, such as lr=1e-3")
        try:
            found[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[name] = value
    return found


def check_methods(names: list[str], option: str = "--method") -> list[str]:
    """The names, if each is a method: checked before data and model are read."""
    from ..methods import find_method, list_methods

    if not names:
        raise ConfigError(f"{option} names no method; choose from {', '.join(list_methods())}")
    for name in names:
        try:
            find_method(name)
        except ConfigError as error:
            raise ConfigError(f"{option}: {error}") from error
    return names


def check_used(
    context: typer.Context,
    data: DataOptions,
    stream: StreamOptions,
    domains: list[str] | None,
) -> None:
    """Refuse options that would do nothing: they are for data sets."""
    data.check()
    order = context.get_parameter_source("order")
    given = order is not None and order.name != "DEFAULT"
    if Path(data.data).exists() and (domains or stream.corruption or given):
        raise ConfigError(
            "--domain, --corruption and --order are for data sets, not for a folder or a list"
            " of images; leave them out"
        )


def check_file(path: Path | None, option: str) -> None:
    """Refuse a file that cannot be written before the work, not after it."""
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
