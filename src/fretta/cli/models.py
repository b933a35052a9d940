"""`fretta list` and `fretta check`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from .app import console, say, table


def register(app: typer.Typer) -> None:
    app.command("list")(list_methods)
    app.command("check")(check)


def list_methods() -> None:
    """List the methods: what each does, needs, and costs per batch (F: forward, B: backward)."""
    from ..methods import REGISTRY

    rows = table("method", "passes", "needs", "what it does")
    for key, method in sorted(REGISTRY.items()):
        needs = ", ".join(sorted(need.name.lower() for need in method.needs)) or "-"
        rows.add_row(key, method.passes, needs, method.summary)
    console.print(rows)


def check(
    model: Annotated[
        str,
        typer.Argument(help="timm:NAME, torchvision:NAME, hf:FOLDER, cifar:NAME or module:factory"),
    ],
    weights: Annotated[
        str | None,
        typer.Option(help="A .safetensors file, or a torch file that holds only tensors."),
    ] = None,
    num_classes: Annotated[int | None, typer.Option(help="Size of the head.")] = None,
    head: Annotated[str | None, typer.Option(help="Name of the head, if it is not found.")] = None,
    size: Annotated[
        int | None, typer.Option(help="Image size; the model's own if not given.")
    ] = None,
) -> None:
    """Look at a model: the head, the norm layers, which methods fit and why not."""
    import torch

    from ..inspection import input_size, inspect
    from ..models import load

    net = load(model, weights=weights, num_classes=num_classes)
    channels, height, width = input_size(net)
    seen = inspect(net, torch.rand(2, channels, size or height, size or width), head)
    norms = ", ".join(f"{n} {kind}" for kind, n in seen.norms.items()) or "none"
    found = (
        f"{seen.head} ({seen.features} features)"
        if seen.head
        else f"not found: {seen.head_problem}"
    )
    say(f"model     {model} ({seen.model}, {seen.parameters:,} parameters)")
    say(f"classes   {seen.classes}")
    say(f"head      {found}")
    say(f"norms     {norms}\n")
    rows = table("method", "fits", "note")
    for fit in seen.fits:
        rows.add_row(fit.method, "[green]yes[/]" if fit.fits else "[red]no[/]", escape(fit.note))
    console.print(rows)
