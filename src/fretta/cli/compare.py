"""`fretta compare`: several methods on the same images, ranked."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from . import options as opt
from .app import print_line, print_table
from .progress import progress_bar
from .run import open_case, read_files, skipped

if TYPE_CHECKING:
    from ..deploy.label_me import Predicted
    from ..estimate.compare import Compared
    from ..experiment.case import Case
    from ..experiment.loop import Item
    from ..method import Method
    from ..models.labels import Labels

COLUMNS = (
    *("method", "verdict", "reason", "without_labels", "change", "low", "high", "adapted"),
    *("source", "disagreement", "collapsed", "accuracy", "measured_change", "measured_low"),
    *("measured_high", "measured_p", "measured_images", "samples", "seconds_per_batch"),
)
NAMED = 20  # unreadable files that are named on the terminal


@dataclass
class Images:
    """Batches to compare methods on, and what is known of them."""

    batches: Iterator[Item]
    total: int
    labels: Labels
    unreadable: list[tuple[str, str]] = field(default_factory=list)  # (file, why), as found
    names: list[str] = field(default_factory=list)  # of the files that were read


def compare(
    context: typer.Context,
    model: opt.ModelOptions,
    data: opt.DataOptions,
    methods: opt.Methods = "source,bn,tent,g-fret,stein,auto",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for compare.html, compare.csv and compare.json, label-me.csv."),
    ] = None,
    pretrained: opt.Pretrained = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="METHOD.NAME=VALUE, such as tent.lr=1e-3 (several times)."),
    ] = None,
    domain: opt.Domains = None,
    severity: opt.Severity = None,
    stream: opt.StreamOptions = opt.StreamOptions(),
    source: opt.Source = None,
    level: Annotated[float, typer.Option(help="How often intervals are meant to hold.")] = 0.9,
    temperature: Annotated[
        float, typer.Option(help="That calibrates the source model, if known.")
    ] = 1.0,
    prior: opt.Prior = None,
    answers: Annotated[
        Path | None,
        typer.Option(help="label-me.csv, filled in: the verdict from it. All else as before."),
    ] = None,
    skip_unreadable: opt.SkipUnreadable = False,
    device: opt.Device = None,
    workers: opt.DataDecoders = None,
) -> None:
    """Does adapting help here, and which method? Labels are not needed; each image is read once."""
    from ..deploy.label_me import check_answers
    from ..estimate.compare import answer
    from ..estimate.compare import compare as run
    from ..estimate.prior import class_shares, read_prior
    from ..estimate.shares import measure_source
    from .compare_page import note_on, table_of

    chosen = _methods(methods, set_ or [])
    given_prior = None if prior is None else read_prior(prior)
    if out is not None:
        opt.check_file(out / "compare.html", "--out")
    opt.check_used(context, data, stream, domain)
    case = open_case(
        model,
        data,
        source,
        files=True,
        pretrained=pretrained,
        device=device,
        **stream.shift(severity),
    )
    if case.dataset is None:
        images = _from_files(case, data, stream, workers, skip_unreadable)
    else:
        images = _from_data_set(case, stream, domain, workers, skip_unreadable)
    names, shares = images.labels.names, None
    if answers is not None:
        check_answers(answers, names)
    if given_prior is not None:
        shares = class_shares(given_prior, images.labels.by_name(), len(names))
    facts = measure_source(case, stream.batch_size) if shares is None else None
    if facts is not None:
        print_line(f"shares  what the model confuses on {facts.images:,} labeled source images")
    with progress_bar("images") as advance:
        rows = run(
            case.net,
            images.batches,
            chosen,
            source=None if source is None else lambda: case.source_images(stream.batch_size),
            head=model.head,
            level=level,
            temperature=temperature,
            prior=shares,
            facts=facts,
            on_batch=lambda done: advance(done, images.total),
        )
    # a data set may name fewer classes than the model has
    names += [f"class {i}" for i in range(len(names), len(rows[0].predicted))]
    if answers is not None:
        rows = _with_answers(rows, images, names, answers, level)
    _print_unreadable(images)
    print_table(*table_of(rows, names))
    print_line("\n" + note_on(rows, level))
    print_line("\n" + answer(rows, names))
    if out is not None:
        about = {"model": model.model, "data": data.data, "images": case.images_text()}
        _write(out, rows, images, {**about, "prior": shares, "answer": answer(rows, names)})
    _ask(out, rows, images, names)


def _methods(names: str, pairs: list[str]) -> dict[str, Method]:
    """Methods by name, from "tent,g-fret" and ["tent.lr=1e-3"]."""
    from ..api import build_method

    values: dict[str, dict[str, Any]] = {n.strip(): {} for n in names.split(",") if n.strip()}
    opt.check_methods(list(values), "--methods")
    for pair in pairs:
        method, dot, rest = pair.partition(".")
        if not dot or method not in values:
            raise ConfigError(
                f"--set {pair!r}; write METHOD.NAME=VALUE with a method of --methods"
                f" ({', '.join(values)}), such as tent.lr=1e-3"
            )
        values[method] |= opt.hyperparameters([rest])
    methods = {name: build_method(name, given) for name, given in values.items()}
    for built in methods.values():
        built.check()
    return methods


# ---- images -------------------------------------------------------------------------------------


def _from_data_set(
    case: Case,
    options: opt.StreamOptions,
    domains: list[str] | None,
    workers: int | None,
    skip_unreadable: bool,
) -> Images:
    """Domains are judged one by one, and labels are known."""
    from ..models.labels import Labels

    stream = case.stream(
        options.order,
        seed=options.seed,
        batch_size=options.batch_size,
        limit=options.limit or None,
        domains=domains,
        workers=workers or 0,
        errors="skip" if skip_unreadable else "raise",
    )

    def batches() -> Iterator[Item]:
        yield from case.items(stream)
        images.unreadable.extend(skipped(stream))

    labels = Labels(list(case.data.classes), "the data set")
    images = Images(batches(), stream.samples, labels)
    return images


def _from_files(
    case: Case,
    data: opt.DataOptions,
    options: opt.StreamOptions,
    workers: int | None,
    skip_unreadable: bool,
) -> Images:
    """A folder or list, read as `fretta adapt` reads it."""
    import torch

    from ..deploy.setup import find_images
    from ..experiment.loop import Item
    from ..models.labels import named_by_folders, truth_of

    seed, limit = options.seed, options.limit or None
    listing, _ = find_images(data.data, print_line, root=data.root, seed=seed, limit=limit)
    case.labels = named_by_folders(case.labels, listing.folders)
    print_line(f"labels  {case.labels.origin}")
    truth, why_not = truth_of(listing.folders, case.labels)
    if why_not:
        print_line(f"accuracy unknown: {why_not}")
    unreadable: list[tuple[str, str]] = []
    read: list[str] = []

    def batches() -> Iterator[Item]:
        size, skip = options.batch_size, skip_unreadable
        for names, pixels in read_files(case, listing, size, workers, unreadable, skip):
            read.extend(names)
            folders = map(os.path.dirname, names)
            y = torch.tensor([truth.get(folder, -1) for folder in folders]) if truth else None
            yield Item(case.preprocessing.apply(pixels, case.device), y)

    return Images(batches(), len(listing.names), case.labels, unreadable, read)


# ---- a few labels --------------------------------------------------------------------------------


def _predicted(rows: list[Compared], images: Images, names: list[str]) -> Predicted:
    """What all methods predict, image by image."""
    from ..deploy.label_me import Predicted

    classes = {row.method: row.classes for row in rows if row.classes is not None}
    return Predicted(images.names, classes.pop("source"), classes, names)


def _with_answers(
    rows: list[Compared], images: Images, names: list[str], file: Path, level: float
) -> list[Compared]:
    from ..deploy.label_me import read_answers
    from ..estimate.compare import ranked

    if not images.names or any(row.measured is not None for row in rows):
        raise ConfigError("--answers is for images without labels; here the labels are known")
    found = read_answers(file, _predicted(rows, images, names), level)
    return ranked(replace(row, answered=found.get(row.method)) for row in rows)


def _ask(out: Path | None, rows: list[Compared], images: Images, names: list[str]) -> None:
    """Where no method is known to help, the images whose labels would decide."""
    from ..deploy.label_me import ask, write_questions
    from ..deploy.output import LABEL_ME

    unsure = [r for r in rows if r.verdict == "cannot tell" and not (r.measured or r.answered)]
    if not images.names or not unsure or any(row.verdict == "helps" for row in rows):
        return
    best = max(unsure, key=lambda row: row.estimate.change)
    found, estimate = _predicted(rows, images, names), best.estimate
    asked = ask(found, best.method, estimate.change, estimate.level)
    if not asked:
        return
    if out is None:
        print_line(f"With --out, {LABEL_ME} names the images whose labels would decide.")
        return
    write_questions(out / LABEL_ME, found, best.method, asked)
    print_line(
        f"{len(asked):,} labels would decide: fill in {out / LABEL_ME}, and give it with --answers"
    )


# ---- output --------------------------------------------------------------------------------------


def _print_unreadable(images: Images) -> None:
    from ..data.listing import shown

    found = images.unreadable
    if not found:
        return
    print_line(f"{len(found):,} of {images.total:,} images could not be read: left out")
    for name, why in found[:NAMED]:
        print_line(f"  {shown(name)}: {why}")
    if len(found) > NAMED:
        print_line(f"  and {len(found) - NAMED:,} more")


def _write(out: Path, rows: list[Compared], images: Images, facts: dict[str, Any]) -> None:
    from .._util import replace_file
    from .compare_page import page

    names = images.labels.names
    values = [row.to_json(names) for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for value in values:
        measured = {f"measured_{k}": v for k, v in (value["measured"] or {}).items()}
        writer.writerow(value | measured)
    content = {**facts, "unreadable": images.unreadable, "classes": names, "methods": values}
    replace_file(out / "compare.csv", text.getvalue().encode())
    replace_file(out / "compare.json", (json.dumps(content, indent=1) + "\n").encode())
    replace_file(out / "compare.html", page(rows, images, facts).encode())
    print_line(f"wrote compare.csv, compare.json and {out / 'compare.html'}")
