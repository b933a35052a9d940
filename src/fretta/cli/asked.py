"""What every `fretta analyze` command is asked: data, model, methods, stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from .app import say
from .specs import (
    Device,
    Fit,
    Mean,
    Model,
    NumClasses,
    Size,
    Std,
    Threads,
    Weights,
    Where,
    data_spec,
    find_input,
    known_methods,
    settings_of,
    source_spec,
)

if TYPE_CHECKING:
    from ..experiment.analysis import Setting
    from ..models.opening import OpenedModel
    from ..models.preprocessing import Preprocessing


@dataclass
class Asked:
    """What is looked at: the same options for every analysis."""

    model: Model = "digits"
    data: Annotated[
        str, typer.Option(help="A data set (cifar10, digits, ...) or a folder of class folders.")
    ] = "digits"
    method: Annotated[list[str] | None, typer.Option(help="Method (several times).")] = None
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Hyper-parameter, as lr=1e-3, of the methods that have it."),
    ] = None
    corruption: Annotated[
        list[str] | None, typer.Option(help="Corrupt on the fly: all, fog, ... (several times).")
    ] = None
    root: Annotated[Path | None, typer.Option(help="Where the data set is; else FRETTA_DATA.")] = (
        None
    )
    weights: Weights = None
    num_classes: NumClasses = None
    size: Size = None
    mean: Mean = None
    std: Std = None
    fit: Fit = None
    source: Annotated[
        str | None, typer.Option(help="Data set of source images, for methods that need some.")
    ] = None
    order: Annotated[str, typer.Option(help="continual, independent, mixed, ...")] = "continual"
    batch_size: Annotated[int, typer.Option(min=1, help="Images per batch.")] = 64
    seed: Annotated[int, typer.Option(min=0, help="Of the order of the stream.")] = 0
    limit: Annotated[
        int | None, typer.Option(min=0, help="Images per domain; 0: all; default: a few hundred.")
    ] = None
    store: Where = "results"
    threads: Threads = None
    device: Device = None

    @cached_property
    def opened(self) -> tuple[OpenedModel, Preprocessing]:
        from ..models.opening import open_model

        found = open_model(self.model, self.weights, self.num_classes, root=self.root)
        return found, find_input(found, self.size, self.mean, self.std, self.fit)

    def model_of(self) -> dict[str, Any]:
        found, how = self.opened
        return {**found.as_case(), "preprocessing": how}

    def data_of(self, severity: float | None = None) -> dict[str, Any]:
        """The data set; with its corruptions, unless the analysis makes them itself."""
        found, how = self.opened
        spec = data_spec(self.data, None, 5, found.net, how)
        if self.corruption and severity is not None:
            spec |= {"corruption": self.corruptions, "severity": severity}
        return spec

    @property
    def corruptions(self) -> list[str]:
        """By name; `all` are the 15 of the benchmark, `extra` the 4 others."""
        from ..corruptions import CORRUPTIONS, EXTRA

        named = {"all": CORRUPTIONS, "extra": EXTRA}
        found = [c for asked in self.corruption or [] for c in named.get(asked, (asked,))]
        return list(dict.fromkeys(found))

    @property
    def base(self) -> str | None:
        """Where the data is: a folder given as data set is its own root."""
        folder = Path(self.data) if Path(self.data).is_dir() and self.root is None else self.root
        return None if folder is None else str(folder)

    def images(self, few: int) -> int | None:
        """Images per domain; `few` unless told."""
        return (few if self.limit is None else self.limit) or None

    def setting(self, methods: list[str], few: int, severity: float | None = None) -> Setting:
        import torch

        from ..experiment.analysis import Setting
        from ..parts.compute import find_device

        if self.threads is not None:
            torch.set_num_threads(self.threads)
        how = self.opened[1]
        say(f"images  {how.text()}")
        return Setting(
            data=self.data_of(severity),
            model=self.model_of(),
            methods=known_methods(self.method or methods),
            hyperparameters=settings_of(self.set_ or []),
            root=self.base,
            source=source_spec(self.source, how),
            order=self.order,
            batch_size=self.batch_size,
            seed=self.seed,
            limit=self.images(few),
            device=str(find_device(self.device)),
        )


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of `Asked`, which the function gets as its first argument."""
    common = get_type_hints(Asked, include_extras=True)
    own = get_type_hints(function, include_extras=True)
    mine = [p for p in signature(function).parameters.values() if p.name != "asked"]

    def command(**given: Any) -> None:
        asked = Asked(**{name: given.pop(name) for name in common})
        function(asked, **given)

    parameters = [
        Parameter(n, Parameter.KEYWORD_ONLY, default=getattr(Asked, n), annotation=hint)
        for n, hint in common.items()
    ] + [
        Parameter(p.name, Parameter.KEYWORD_ONLY, default=p.default, annotation=own[p.name])
        for p in mine
    ]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command
