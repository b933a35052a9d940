"""`fretta compare`: several methods on the same images, ranked without labels."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ..errors import ConfigError, StoreError
from .app import console, say, table
from .images import Given, from_data_set, from_files, source_images
from .progress import bar
from .tables import DASH

if TYPE_CHECKING:
    import torch

    from ..compare import Compared
    from ..method import Method

COLUMNS = (
    *("method", "verdict", "change", "low", "high", "adapted", "source", "disagreement"),
    *("collapsed", "accuracy", "samples", "seconds_per_batch"),
)


def register(app: typer.Typer) -> None:
    app.command()(compare)


def compare(
    model: Annotated[
        str, typer.Option(help="A source model (digits, FILE with card) or timm:NAME, ...")
    ],
    data: Annotated[
        str,
        typer.Option(help="A folder of images, a file with a path per line, or a data set."),
    ],
    methods: Annotated[
        str, typer.Option(help="Names with commas between.")
    ] = "source,bn,tent,s-fret,g-fret",
    out: Annotated[
        Path | None, typer.Option(help="Folder for compare.csv and compare.json.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Weights for timm:NAME and the like.")] = None,
    num_classes: Annotated[int | None, typer.Option(help="Size of the head.")] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Class names, to tell the accuracy of class folders.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="METHOD.NAME=VALUE, such as tent.lr=1e-3 (several times)."),
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Where the data set is; else FRETTA_DATA.")
    ] = None,
    domain: Annotated[
        list[str] | None, typer.Option(help="Only this domain of the data set (several times).")
    ] = None,
    corruption: Annotated[
        str | None, typer.Option(help="Corrupt the data set on the fly: all, fog, ...")
    ] = None,
    severity: Annotated[int, typer.Option(help="Of --corruption.")] = 5,
    order: Annotated[
        str, typer.Option(help="Of the data set: continual, independent, mixed, ...")
    ] = "continual",
    batch_size: Annotated[int, typer.Option(min=1)] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Of the order.")] = 0,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Images (per domain of a data set).")
    ] = None,
    size: Annotated[int | None, typer.Option(help="Image size in pixels.")] = None,
    mean: Annotated[str | None, typer.Option(help="0.485,0.456,0.406")] = None,
    std: Annotated[str | None, typer.Option(help="0.229,0.224,0.225")] = None,
    source: Annotated[
        Path | None, typer.Option(help="Folder of source images, for methods that need some.")
    ] = None,
    level: Annotated[float, typer.Option(help="How often intervals are meant to hold.")] = 0.9,
    temperature: Annotated[
        float, typer.Option(help="That calibrates the source model, if known.")
    ] = 1.0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Threads that decode images.")] = 2,
) -> None:
    """Does adapting help here, and which method? Labels are not needed; each image is read once."""
    from ..compare import answer
    from ..compare import compare as run
    from ..deploy.intake import find_intake
    from ..deploy.source import open_model

    named = _isfrom_data_set(data)
    settings = _settings(methods, set_ or [])
    _check_out(out)
    net, spec, _ = open_model(model, _weights(weights, root), num_classes, False)
    place = _device(device)
    net = net.to(place)
    intake = find_intake(
        net, spec, size=size, mean=_numbers(mean, "--mean"), std=_numbers(std, "--std")
    )
    given = Given(
        *(data, root, domain, corruption, severity, order, batch_size, seed, limit, labels),
        *(workers, place),
    )
    items, total = from_data_set(given, intake) if named else from_files(given, intake, net)
    with bar("images") as advance:
        rows = run(
            net,
            items,
            _methods(settings, list(intake.preprocessing.std)),
            source=None if source is None else source_images(source, intake, given),
            level=level,
            temperature=temperature,
            on_batch=lambda done: advance(done, total),
        )
    _print(rows, level)
    say("\n" + answer(rows))
    if out is not None:
        _write(out, rows, {"model": model, "data": data, "answer": answer(rows)})


def _weights(weights: str | None, root: Path | None) -> str | None:
    from ..locate import find_weights
    from ..models.imagenet import PACKAGED

    return weights if weights is None or weights in PACKAGED else str(find_weights(weights, root))


def _device(name: str | None) -> torch.device:
    import torch

    try:
        return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError as error:
        raise ConfigError(f"--device {name!r} cannot be used: {error}") from error


# ---- what the user said -------------------------------------------------------------------------


def _isfrom_data_set(data: str) -> bool:
    """The name of a data set; False for a path that exists."""
    from ..streams import list_datasets
    from ..streams.datasets import check_name

    if Path(data).exists():
        return False
    try:
        check_name(data)
    except ConfigError as error:
        raise ConfigError(
            f"--data {data!r} is no folder or list of images that exists, nor a data set"
            f" ({', '.join(list_datasets())})"
        ) from error
    return True


def _numbers(text: str | None, option: str) -> tuple[float, ...] | None:
    try:
        return None if text is None else tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(
            f"{option} {text!r} is not a list of numbers such as 0.5,0.5,0.5"
        ) from error


def _settings(methods: str, pairs: list[str]) -> dict[str, dict[str, Any]]:
    """{method: hyper-parameters} from "tent,g-fret" and ["tent.lr=1e-3"]."""
    from .specs import settings_of as values_of

    found: dict[str, dict[str, Any]] = {n.strip(): {} for n in methods.split(",") if n.strip()}
    for pair in pairs:
        method, dot, rest = pair.partition(".")
        if not dot or method not in found:
            raise ConfigError(
                f"--set {pair!r}; write METHOD.NAME=VALUE with a method of --methods"
                f" ({', '.join(found)}), such as tent.lr=1e-3"
            )
        found[method] |= values_of([rest])
    return found


def _methods(settings: dict[str, dict[str, Any]], std: list[float]) -> dict[str, Method]:
    from ..api import build_method
    from ..methods import REGISTRY

    chosen = {}
    for name, values in settings.items():
        if name in REGISTRY and "std" in REGISTRY[name].field_names():  # TIPI: pixels to inputs
            values = {"std": std, **values}
        chosen[name] = build_method(name, values)
        chosen[name].check()
    return chosen


def _check_out(out: Path | None) -> None:
    """Before the work: a folder that cannot be written to is no use after it."""
    if out is None:
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write to {str(out)!r}: {error.strerror or error}") from error


# ---- what the user sees -------------------------------------------------------------------------


def _print(rows: list[Compared], level: float) -> None:
    labelled = any(row.accuracy is not None for row in rows)
    base = next((r.accuracy for r in rows if r.verdict == "reference"), None)
    head = ["method", "verdict", "change", "low", "high", "accuracy"]
    shown = table(*head, *(["true change", "true"] if labelled else []), "ms/batch")
    for row in rows:
        e = row.estimate
        reference = row.verdict == "reference"
        cells = [
            row.method,
            row.verdict,
            DASH if reference else f"{100 * e.change:+.1f}",
            DASH if reference else f"{100 * e.low:+.1f}",
            DASH if reference else f"{100 * e.high:+.1f}",
            f"{100 * e.adapted:.1f}",
        ]
        if labelled:
            known = row.accuracy is not None and base is not None and not reference
            cells += [
                f"{100 * ((row.accuracy or 0) - (base or 0)):+.1f}" if known else DASH,
                DASH if row.accuracy is None else f"{100 * row.accuracy:.1f}",
            ]
        shown.add_row(*map(escape, cells), f"{1000 * row.seconds_per_batch:.0f}")
    console.print(shown)
    say(
        f"\nEstimated without labels, in points of accuracy; low to high is meant to hold"
        f" {100 * level:g} % of the time."
        + (" True numbers from the labels, for comparison only." if labelled else "")
    )


def _write(out: Path, rows: list[Compared], facts: dict[str, Any]) -> None:
    from ..files import replace_file

    values = [row.to_json() for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(values)
    content = json.dumps({**facts, "methods": values}, indent=1) + "\n"
    try:
        replace_file(out / "compare.csv", text.getvalue().encode())
        replace_file(out / "compare.json", content.encode())
    except OSError as error:
        raise StoreError(f"cannot write to {str(out)!r}: {error.strerror or error}") from error
    say(f"wrote {out / 'compare.csv'} and {out / 'compare.json'}")
