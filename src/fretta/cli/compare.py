"""`fretta compare`: several methods on the same images, ranked."""

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
from .images import Given, Images, from_data_set, from_files, source_images
from .progress import bar
from .specs import (
    Fit,
    Mean,
    Model,
    NumClasses,
    Prior,
    Size,
    Std,
    Weights,
    find_input,
    known_methods,
)

if TYPE_CHECKING:
    from ..estimate.compare import Compared
    from ..method import Method

COLUMNS = (
    *("method", "verdict", "reason", "without_labels", "change", "low", "high", "adapted"),
    *("source", "disagreement", "collapsed", "accuracy", "measured_change", "measured_low"),
    *("measured_high", "measured_p", "measured_images", "samples", "seconds_per_batch"),
)
NAMED = 20  # unreadable files that are named on the terminal


def register(app: typer.Typer) -> None:
    app.command()(compare)


def compare(
    model: Model,
    data: Annotated[
        str,
        typer.Option(help="A folder of images, a file with a path per line, or a data set."),
    ],
    methods: Annotated[
        str, typer.Option(help="Names with commas between.")
    ] = "source,bn,tent,s-fret,g-fret",
    out: Annotated[
        Path | None, typer.Option(help="Folder for compare.html, compare.csv and compare.json.")
    ] = None,
    weights: Weights = None,
    num_classes: NumClasses = None,
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
    size: Size = None,
    mean: Mean = None,
    std: Std = None,
    fit: Fit = None,
    source: Annotated[
        Path | None, typer.Option(help="Folder of source images, for methods that need some.")
    ] = None,
    level: Annotated[float, typer.Option(help="How often intervals are meant to hold.")] = 0.9,
    temperature: Annotated[
        float, typer.Option(help="That calibrates the source model, if known.")
    ] = 1.0,
    prior: Prior = None,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out files that cannot be read.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Threads that decode images.")] = 2,
) -> None:
    """Does adapting help here, and which method? Labels are not needed; each image is read once."""
    from ..estimate.compare import answer
    from ..estimate.compare import compare as run
    from ..estimate.prior import class_shares, read_prior
    from ..models.opening import open_model
    from ..parts.compute import find_device

    named = _isfrom_data_set(data)
    settings = _settings(methods, set_ or [])
    known_methods(list(settings), "--methods")
    given_prior = None if prior is None else read_prior(prior)
    _check_out(out)
    opened = open_model(model, weights, num_classes, root=root)
    place = find_device(device)
    net = opened.net.to(place)
    how = find_input(opened, size, mean, std, fit)
    say(f"images  {how.text()}")
    given = Given(
        *(data, root, domain, corruption, severity, order, batch_size, seed, limit, labels),
        *(workers, place, skip_unreadable),
    )
    images = from_data_set(given, how) if named else from_files(given, how, net)
    names, shares = images.labels.names, None
    if given_prior is not None:
        shares = class_shares(given_prior, images.labels.by_name(), len(names))
    with bar("images") as advance:
        rows = run(
            net,
            images.items,
            _methods(settings),
            source=None if source is None else source_images(source, how, given),
            level=level,
            temperature=temperature,
            prior=shares,
            on_batch=lambda done: advance(done, images.total),
        )
    # a data set may name fewer classes than the model has
    names += [f"class {i}" for i in range(len(names), len(rows[0].predicted))]
    _tell_unreadable(images)
    _print(rows, names, level)
    say("\n" + answer(rows, names))
    if out is not None:
        facts = {"model": model, "data": data, "prior": shares, "answer": answer(rows, names)}
        _write(out, rows, images, {**facts, "images": how.text()})


# ---- what the user said -------------------------------------------------------------------------


def _isfrom_data_set(data: str) -> bool:
    """The name of a data set; False for a path that exists."""
    from ..data import list_datasets
    from ..data.datasets import check_name

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


def _methods(settings: dict[str, dict[str, Any]]) -> dict[str, Method]:
    from ..api import build_method

    chosen = {}
    for name, values in settings.items():
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


def _tell_unreadable(images: Images) -> None:
    from ..data.listing import shown

    found = images.unreadable
    if not found:
        return
    say(f"{len(found):,} of {images.total:,} images could not be read: left out")
    for name, why in found[:NAMED]:
        say(f"  {shown(name)}: {why}")
    if len(found) > NAMED:
        say(f"  and {len(found) - NAMED:,} more")


def _print(rows: list[Compared], names: list[str], level: float) -> None:
    from .compare_page import note_on, table_of

    head, lines = table_of(rows, names)
    shown = table(*head)
    for line in lines:
        shown.add_row(*map(escape, line))
    console.print(shown)
    say("\n" + note_on(rows, level))


def _write(out: Path, rows: list[Compared], images: Images, facts: dict[str, Any]) -> None:
    from .._util import replace_file
    from .compare_page import page

    names = images.labels.names
    values = [row.to_json(names) for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_flat(value) for value in values)
    content = {**facts, "unreadable": images.unreadable, "classes": names, "methods": values}
    try:
        replace_file(out / "compare.csv", text.getvalue().encode())
        replace_file(out / "compare.json", (json.dumps(content, indent=1) + "\n").encode())
        replace_file(out / "compare.html", page(rows, images, facts).encode())
    except OSError as error:
        raise StoreError(f"cannot write to {str(out)!r}: {error.strerror or error}") from error
    say(f"wrote compare.csv, compare.json and {out / 'compare.html'}")


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    measured = values["measured"] or {}
    return values | {f"measured_{name}": value for name, value in measured.items()}
