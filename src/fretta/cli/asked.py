"""What every `fretta analyze` command is asked: data, model, methods, stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from .specs import (
    Device,
    Threads,
    Where,
    data_spec,
    known_methods,
    model_spec,
    settings_of,
    source_spec,
)

if TYPE_CHECKING:
    from ..analysis import Setting


@dataclass
class Asked:
    """What is looked at: the same options for every analysis."""

    model: Annotated[
        str, typer.Option(help="A source model (digits, FILE with card) or timm:NAME, ...")
    ] = "digits"
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
    weights: Annotated[str | None, typer.Option(help="Weights for timm:NAME and the like.")] = None
    num_classes: Annotated[int | None, typer.Option(help="Size of the head.")] = None
    size: Annotated[int | None, typer.Option(help="Image size in pixels.")] = None
    mean: Annotated[str | None, typer.Option(help="0.485,0.456,0.406")] = None
    std: Annotated[str | None, typer.Option(help="0.229,0.224,0.225")] = None
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

    def model_of(self) -> dict[str, Any]:
        return model_spec(
            *(self.model, self.weights, self.num_classes, self.size, self.mean, self.std)
        )

    def data_of(self, severity: float | None = None) -> dict[str, Any]:
        """The data set; with its corruptions, unless the analysis makes them itself."""
        spec = data_spec(self.data, None, 5, self.size)
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

        from ..analysis import Setting
        from ..parts.compute import find_device

        if self.threads is not None:
            torch.set_num_threads(self.threads)
        return Setting(
            data=self.data_of(severity),
            model=self.model_of(),
            methods=known_methods(self.method or methods),
            hyperparameters=settings_of(self.set_ or []),
            root=self.base,
            source=source_spec(self.source, self.size),
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
