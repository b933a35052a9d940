"""`fretta diagnose`: what changed, before anything is adapted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options as opt
from .app import print_line
from .progress import progress_bar
from .run import open_case, read_files, skipped

if TYPE_CHECKING:
    from ..diagnosis import Diagnosis, Files
    from ..diagnosis.measure import Pictures
    from ..experiment.case import Case
    from ..models.labels import Labels

READ = 64  # images that are looked at together, whatever --batch-size will be


@dataclass
class Reading:
    """Batches to look at, and what is found on the way."""

    batches: Iterator[Pictures]
    total: int
    labels: Labels
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    sizes: Counter[str] = field(default_factory=Counter)

    def files(self) -> Files:
        from ..diagnosis import Files

        return Files(self.total, self.unreadable, dict(self.sizes))


def diagnose(
    context: typer.Context,
    model: opt.ModelOptions,
    data: opt.DataOptions,
    out: Annotated[
        Path | None, typer.Option(help="Folder for diagnose.html and diagnose.json.")
    ] = None,
    source_data: Annotated[
        str | None,
        typer.Option(help="Source images to compare with: a folder, or a data set (its training)."),
    ] = None,
    pretrained: opt.Pretrained = False,
    domain: opt.Domains = None,
    severity: opt.Severity = None,
    stream: opt.StreamOptions = opt.StreamOptions(order="mixed"),
    prior: opt.Prior = None,
    device: opt.Device = None,
    workers: opt.DataDecoders = None,
) -> None:
    """What changed between training and these images, and whether to adapt. Nothing is adapted."""
    from ..diagnosis import Diagnosis
    from ..diagnosis.measure import measure
    from ..estimate.prior import class_shares, read_prior

    given_prior = None if prior is None else read_prior(prior)
    if out is not None:
        opt.check_file(out / "diagnose.html", "--out")
    opt.check_used(context, data, stream, domain)
    case = open_case(
        model,
        data,
        source_data,
        files=True,
        pretrained=pretrained,
        device=device,
        **stream.shift(severity),
    )
    if case.dataset is None:
        reading = _from_files(case, data, stream, workers)
    else:
        reading = _from_data_set(case, stream, domain, workers)
    shares = None
    if given_prior is not None:
        known = reading.labels
        shares = class_shares(given_prior, known.by_name(), len(known.names))
    with progress_bar("images") as advance:
        facts, sheet = measure(
            case.net,
            reading.batches,
            source=None if source_data is None else case.source_images(READ),
            batch_size=stream.batch_size,
            head=model.head,
            prior=shares,
            files=reading.files,
            on_batch=lambda done: advance(done, reading.total),
        )
    found = Diagnosis(facts, reading.labels.names, sheet)
    print_line("\n" + str(found))
    if out is not None:
        settings: list[tuple[str, object]] = [
            ("model", case.spec),
            ("weights", case.weights or case.spec),
            ("data", data.data),
            ("source images", source_data or "none given"),
            ("images", case.images_text()),
            ("batch size", stream.batch_size),
        ]
        _write(out, found, f"{model.model} on {data.data}", settings)


def _from_data_set(
    case: Case, options: opt.StreamOptions, domains: list[str] | None, workers: int | None
) -> Reading:
    """The domains as one stream; files that cannot be read are counted."""
    from ..diagnosis.measure import Pictures
    from ..models.labels import Labels

    stream = case.stream(
        options.order,
        seed=options.seed,
        batch_size=READ,
        limit=options.limit or None,
        domains=domains,
        workers=workers or 0,
        errors="skip",
    )

    def batches() -> Iterator[Pictures]:
        for batch in stream.batches():
            rows = zip(batch.domains, batch.index, strict=True)
            names = [f"{case.data.domains[d].name} {i}" for d, i in rows]
            yield Pictures(case.preprocessing.apply(batch.x, case.device), batch.x, names)
        reading.unreadable.extend(skipped(stream))

    labels = Labels(list(case.data.classes), "the data set")
    reading = Reading(batches(), stream.samples, labels)
    return reading


def _from_files(
    case: Case, data: opt.DataOptions, options: opt.StreamOptions, workers: int | None
) -> Reading:
    """A folder or list, read as `fretta adapt` reads it; files that cannot be read are counted."""
    from ..data.images import size_on_disk
    from ..deploy.setup import find_images
    from ..diagnosis.measure import Pictures

    seed, limit = options.seed, options.limit or None
    listing, _ = find_images(data.data, print_line, root=data.root, seed=seed, limit=limit)

    def batches() -> Iterator[Pictures]:
        for names, pixels in read_files(case, listing, READ, workers, reading.unreadable):
            sizes = [size_on_disk(listing.path(name)) for name in names]
            reading.sizes.update(f"{size[0]}×{size[1]}" for size in sizes if size is not None)
            yield Pictures(case.preprocessing.apply(pixels, case.device), pixels, names)

    reading = Reading(batches(), len(listing.names), case.labels)
    return reading


def _write(out: Path, found: Diagnosis, title: str, settings: list[tuple[str, object]]) -> None:
    from .._util import replace_file
    from ..diagnosis.page import page

    content = {**{name: str(value) for name, value in settings}, **found.to_json()}
    lead = f"{found.facts.images:,} images, before anything is adapted."
    text = json.dumps(content, indent=1) + "\n"
    replace_file(out / "diagnose.json", text.encode("utf-8", "backslashreplace"))
    replace_file(out / "diagnose.html", page(found, title, lead, settings).encode())
    print_line(f"\nwrote diagnose.json and {out / 'diagnose.html'}")
