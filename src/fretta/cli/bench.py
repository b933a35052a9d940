"""`fretta bench-steps`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .app import console, say, table
from .specs import check_file, known_methods

DEFAULT = "source,bn,tent,eta,s-fret,g-fret,sar,tipi"


def register(app: typer.Typer) -> None:
    app.command("bench-steps")(bench_steps)


def bench_steps(
    model: Annotated[
        str, typer.Argument(help="timm:NAME, torchvision:NAME, hf:FOLDER, cifar:NAME, …")
    ] = "timm:resnet18",
    methods: Annotated[str, typer.Option(help="Names with commas between, or 'all'.")] = DEFAULT,
    batch: Annotated[int, typer.Option(min=1, help="Images per batch.")] = 16,
    size: Annotated[int, typer.Option(min=1, help="Side of an image, in pixels.")] = 224,
    num_classes: Annotated[int | None, typer.Option(min=1, help="Size of the head.")] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds; each method takes a step in each.")
    ] = 7,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="Folder for steps.json and steps.png.")] = None,
) -> None:
    """Time a step of each method against a bare forward and against the cheapest possible step.

    That step ("floor") is one forward, one backward to scale and shift, and one update by Adam, in
    plain PyTorch. Images are random; all methods take turns in one process, so compare ratios.
    """
    import torch

    from ..experiment.bench import bench
    from ..methods import list_methods
    from ..models import load
    from ..parts.compute import find_device

    if threads is not None:
        torch.set_num_threads(threads)
    given = list_methods() if methods == "all" else [m.strip() for m in methods.split(",")]
    names = known_methods([name for name in given if name], "--methods")
    place = find_device(device)
    if out is not None:
        check_file(out / "steps.json", "--out")
    net = load(model, num_classes=num_classes).to(place)
    x = torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(0)).to(place)
    with console.status("warming up") as status:
        timings = bench(
            net, x, names, rounds, on_round=lambda n: status.update(f"round {n} of {rounds}")
        )
    several = any(t.own_ratio is not None for t in timings)
    own = ["x own floor"] if several else []
    shown = table("step", "ms", "± %", "x floor", *own, "passes", "waits", "MiB")
    for t in timings:
        shown.add_row(
            t.name,
            f"{t.milliseconds:.1f}",
            f"{100 * t.spread:.0f}",
            f"{t.ratio:.3f}",
            *(["" if t.own_ratio is None else f"{t.own_ratio:.3f}"] if several else []),
            "" if t.forwards is None else f"{t.forwards}F+{t.backwards}B",
            "" if t.waits is None else str(t.waits),
            f"{t.peak_mib:.0f}",
        )
    console.print(shown)
    say(f"{model}, batch {batch} of {size} px, threads {torch.get_num_threads()}, rounds {rounds}")
    say("Medians; ratios are taken within each round. Waits: values the host asks for in a step.")
    say("The floor has PyTorch's default memory layout; steps below 1 owe it to channels-last.")
    filtered = [t.name for t in timings if t.name in ("eta", "eata", "sar") and not t.backwards]
    if filtered:
        say(f"No random image passed the filters of {', '.join(filtered)}: no backward was needed.")
    if out is not None:
        facts = {
            "model": model,
            "batch": batch,
            "size": size,
            "classes": num_classes,
            "threads": torch.get_num_threads(),
            "rounds": rounds,
            "torch": torch.__version__,
            "steps": [t.to_json() for t in timings],
        }
        (out / "steps.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
        from ..experiment.bench import plot

        plot(timings, f"{model}, {batch} × {size} px", out / "steps.png")
        say(f"{out / 'steps.json'}, {out / 'steps.png'}")
