"""`fretta list`, `fretta info`, `fretta check` and `fretta bench-steps`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError
from . import options as opt
from .app import console, print_line, print_table
from .messages import name_options

BENCH_METHODS = "source,bn,tent,eta,s-fret,g-fret,sar,tipi"


def list_methods() -> None:
    """List the methods: what each does, needs, and costs per batch (F: forward, B: backward)."""
    from ..methods import find_method, list_methods

    rows = []
    for key in list_methods():
        method = find_method(key)
        needs = ", ".join(sorted(need.name.lower() for need in method.needs)) or "-"
        rows.append([key, method.passes, needs, method.summary])
    print_table(["method", "passes", "needs", "what it does"], rows)


def info(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="A method, by name.")],
) -> None:
    """What a method is: paper, loss, needs, cost, hyper-parameters, how its variants differ."""
    from ..describe import describe

    found = describe(method)
    rows = [
        ("method", found.key),
        ("paper", found.paper),
        ("does", found.what),
        ("loss", found.loss),
        ("needs", found.needs),
        ("cost", found.cost),
        *((f"{name}:", text) for name, text in found.variants.items()),
    ]
    for name, text in rows:
        for line in text.splitlines() or [""]:
            print_line(f"{name:<9} {line}".rstrip())
            name = ""
    print_line("")
    columns = ["hyper-parameter", "default", "meaning", "published"]
    print_table(columns, [[f.name, f.default, f.meaning, f.published] for f in found.fields])


def check(
    name: Annotated[str | None, typer.Argument(metavar="MODEL", help=opt.MODEL)] = None,
    model: opt.ModelOptions = opt.ModelOptions(model=""),
    pretrained: opt.Pretrained = False,
) -> None:
    """Look at a model: its input, the head, the norm layers, which methods fit and why not."""
    import torch

    from ..experiment.case import open_case
    from ..inspection import input_size, inspect
    from ..models.preprocessing import Preprocessing

    if bool(name) == bool(model.model):
        raise ConfigError("give the model once: fretta check MODEL, or fretta check --model MODEL")
    chosen = replace(model, model=name or model.model)
    arguments = {**chosen.arguments(), "pretrained": pretrained, "untrained": True}
    try:
        case = open_case(**arguments)
    except ConfigError as error:  # one can look at a network whose preprocessing is not known
        case = open_case(**arguments, preprocessing=Preprocessing())
        images = name_options(str(error), ["check"])
        channels, height, width = input_size(case.net)
    else:
        images, channels = case.images_text(), len(case.preprocessing.mean)
        height = width = case.preprocessing.size or input_size(case.net)[1]
    x = torch.rand(2, channels, model.size or height, model.size or width)
    seen = inspect(case.net.cpu(), x, model.head)
    norms = ", ".join(f"{n} {kind}" for kind, n in seen.norms.items()) or "none"
    head = (
        f"{seen.head} ({seen.features} features)"
        if seen.head
        else f"not found: {name_options(seen.head_problem, ['check'])}"
    )
    print_line(
        f"model     {chosen.model} ({seen.model}, {seen.parameters:,} parameters)\n"
        f"images    {images}\nclasses   {seen.classes}\nhead      {head}\nnorms     {norms}\n"
    )
    rows = [
        [r.method, "yes" if r.fits else "no", name_options(r.note, ["check"])] for r in seen.fits
    ]
    print_table(["method", "fits", "note"], rows)


def bench_steps(
    model: Annotated[str, typer.Argument(help=opt.MODEL)] = "timm:resnet18",
    methods: opt.Methods = BENCH_METHODS,
    batch: Annotated[int, typer.Option(min=1, help="Images per batch.")] = 16,
    size: Annotated[int, typer.Option(min=1, help="Side of an image, in pixels.")] = 224,
    num_classes: opt.NumClasses = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds; each method takes a step in each.")
    ] = 7,
    threads: opt.Threads = None,
    device: opt.DeviceName = "cpu",
    out: Annotated[Path | None, typer.Option(help="Folder for steps.json and steps.png.")] = None,
) -> None:
    """Time a step of each method against a bare forward and against a plain step of training.

    That step ("floor") is one forward, one backward to scale and shift, and one update by Adam, in
    plain PyTorch. Images are random; all methods take turns in one process, so compare ratios.
    """
    import torch

    from ..experiment.bench import bench, plot
    from ..methods import list_methods
    from ..models import load
    from ..parts.compute import find_device

    if threads is not None:
        torch.set_num_threads(threads)
    given = list_methods() if methods == "all" else [m.strip() for m in methods.split(",")]
    names = opt.check_methods([name for name in given if name], "--methods")
    place = find_device(device)
    if out is not None:
        opt.check_file(out / "steps.json", "--out")
    net = load(model, num_classes=num_classes).to(place)
    x = torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(0)).to(place)
    with console.status("warming up") as status:
        timings = bench(
            net, x, names, rounds, on_round=lambda n: status.update(f"round {n} of {rounds}")
        )
    columns = ["step", "ms", "± %", "x floor", "x own floor", "passes", "waits", "MiB"]
    rows = []
    for t in timings:
        own = "" if t.own_ratio is None else f"{t.own_ratio:.3f}"
        passes = "" if t.forwards is None else f"{t.forwards}F+{t.backwards}B"
        waits = "" if t.waits is None else str(t.waits)
        numbers = [f"{t.milliseconds:.1f}", f"{100 * t.spread:.0f}", f"{t.ratio:.3f}"]
        rows.append([t.name, *numbers, own, passes, waits, f"{t.peak_mib:.0f}"])
    print_table(columns, rows)
    print_line(
        f"{model}, batch {batch} of {size} px, threads {torch.get_num_threads()}, rounds {rounds}\n"
        "Medians; ratios are taken within each round. Waits: values the host needs in a step.\n"
        "The floor has PyTorch's default memory layout; steps below 1 owe it to channels-last."
    )
    filtered = [t.name for t in timings if t.name in ("eta", "eata", "sar") and not t.backwards]
    if filtered:
        print_line(f"No image passed the filters of {', '.join(filtered)}: no backward was needed.")
    if out is None:
        return
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
    plot(timings, f"{model}, {batch} × {size} px", out / "steps.png")
    print_line(f"{out / 'steps.json'}, {out / 'steps.png'}")
