"""`fretta list` and `fretta check`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from ..errors import ConfigError
from .app import console, say, table
from .specs import MODEL, Fit, Head, Mean, NumClasses, Pretrained, Size, Std, Weights, find_input
from .words import in_options


def register(app: typer.Typer) -> None:
    app.command("list")(list_methods)
    app.command("check")(check)


def list_methods() -> None:
    """List the methods: what each does, needs, and costs per batch (F: forward, B: backward)."""
    from ..methods import find_method, list_methods

    rows = table("method", "passes", "needs", "what it does")
    for key in list_methods():
        method = find_method(key)
        needs = ", ".join(sorted(need.name.lower() for need in method.needs)) or "-"
        rows.add_row(key, method.passes, needs, method.summary)
    console.print(rows)


def check(
    name: Annotated[str | None, typer.Argument(metavar="MODEL", help=MODEL)] = None,
    model: Annotated[
        str | None, typer.Option(help="The same, as the other commands take it.")
    ] = None,
    weights: Weights = None,
    num_classes: NumClasses = None,
    pretrained: Pretrained = False,
    head: Head = None,
    size: Size = None,
    mean: Mean = None,
    std: Std = None,
    fit: Fit = None,
) -> None:
    """Look at a model: its input, the head, the norm layers, which methods fit and why not."""
    import torch

    from ..inspection import input_size, inspect
    from ..models.opening import open_model

    model = _one(name, model)
    opened = open_model(model, weights, num_classes, pretrained, untrained=True)
    net = opened.net
    channels, height, width = input_size(net)
    try:
        how = find_input(opened, size, mean, std, fit)
    except ConfigError as error:  # a network can be looked at without
        images = str(error)
    else:
        images, channels = how.text(), len(how.mean)
        height = width = how.size or height
    seen = inspect(net, torch.rand(2, channels, size or height, size or width), head)
    norms = ", ".join(f"{n} {kind}" for kind, n in seen.norms.items()) or "none"
    found = (
        f"{seen.head} ({seen.features} features)"
        if seen.head
        else f"not found: {in_options(seen.head_problem, ['check'])}"
    )
    say(f"model     {model} ({seen.model}, {seen.parameters:,} parameters)")
    say(f"images    {images}")
    say(f"classes   {seen.classes}")
    say(f"head      {found}")
    say(f"norms     {norms}\n")
    rows = table("method", "fits", "note")
    for row in seen.fits:
        fits = "[green]yes[/]" if row.fits else "[red]no[/]"
        rows.add_row(row.method, fits, escape(in_options(row.note, ["check"])))
    console.print(rows)


def _one(argument: str | None, option: str | None) -> str:
    given = [text for text in (argument, option) if text is not None]
    if len(given) != 1:
        raise ConfigError("give the model once: fretta check MODEL, or fretta check --model MODEL")
    return given[0]
