"""PACS, OfficeHome, VLCS, DomainNet, and any folder laid out like them or like ImageFolder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import ConfigError, DataError
from ..models.preprocessing import CROP_RATIO, Decoding
from .domain import Dataset, as_names
from .folders import (
    agree,
    complain,
    data_root,
    file_domain,
    has_images,
    listed,
    locate,
    plain,
    scan,
    subfolders,
)
from .known import DOMAIN_SETS, DomainSet

LAYOUTS = ("auto", "classes", "domains")


def find_domains(facts: DomainSet, root: str | Path | None) -> tuple[Path, dict[str, Path]]:
    """The data set's folder and, for each known domain that is there, its folder."""
    wanted = {plain(name): name for name in facts.domains}

    def fits(folder: Path) -> bool:
        return any(plain(name) in wanted for name in subfolders(folder))

    base = locate(
        data_root(root, facts.title),
        facts.title,
        facts.folders,
        fits,
        f"a folder with any of {', '.join(facts.domains)}",
    )
    there: dict[str, Path] = {}
    for name in subfolders(base):
        domain = wanted.get(plain(name))
        if domain in there:
            raise DataError(
                f"{base} has two folders for domain {domain!r}: {there[domain].name!r} "
                f"and {name!r}; keep one"
            )
        if domain is not None:
            there[domain] = base / name
    return base, there


def open_domain_set(
    name: str,
    root: str | Path | None = None,
    *,
    domains: str | Sequence[str] | None = None,
    size: int | None = 224,
    fit: str = "squash",
    interpolation: str = "bilinear",
    exif: bool = False,
    crop_ratio: float = CROP_RATIO,
    verify: str = "warn",
) -> Dataset:
    """One of the known domain sets. `domains=None` takes those that are on disk."""
    facts = DOMAIN_SETS[name]
    decoding = Decoding(size, fit, interpolation, exif, crop_ratio)
    known = {plain(domain): domain for domain in facts.domains}
    wanted = None if domains is None else as_names(domains)
    for asked in wanted or ():
        if plain(asked) not in known:
            raise ConfigError(
                f"{facts.title} has no domain {asked!r}; it has {', '.join(facts.domains)}"
            )
    base, there = find_domains(facts, root)
    chosen = (
        [known[plain(asked)] for asked in wanted]
        if wanted
        else [domain for domain in facts.domains if domain in there]
    )
    absent = [domain for domain in chosen if domain not in there]
    if absent:
        raise DataError(
            f"{facts.title} domain {listed(absent)} is missing: no folder of that name in {base}, "
            f"which has {', '.join(there) or 'none of them'}"
        )
    scans = {domain: scan(there[domain]) for domain in chosen}
    classes = agree(scans, str(base), facts.classes)
    if len(classes) != facts.class_count:
        raise DataError(
            f"{facts.title} has {facts.class_count} classes, but {base} has {len(classes)}: "
            f"{listed(classes)}"
        )
    found = [file_domain(d, there[d], scans[d], classes, decoding) for d in chosen]
    wrong = [
        f"{d.name} {len(d):,} (known: {facts.counts[d.name]:,})"
        for d in found
        if len(d) != facts.counts[d.name]
    ]
    if wrong:
        complain(
            verify,
            f"{facts.title} in {base} does not have the known number of images: {listed(wrong)}; "
            "results are not comparable with published ones (verify='off' silences this)",
        )
    missing = tuple(domain for domain in facts.domains if domain not in there)
    return Dataset(name, classes, found, root=str(base), missing=missing)


def guess_layout(base: Path) -> str:
    """`classes` where the folders in `base` hold images, `domains` where they hold folders."""
    classes, domains = [], []
    for name in subfolders(base):
        if has_images(base / name):
            classes.append(name)
        elif subfolders(base / name):
            domains.append(name)
    if classes and domains:
        raise DataError(
            f"the layout of {base} is ambiguous: {listed(domains)} hold folders and "
            f"{listed(classes)} hold images; pass layout='classes' or layout='domains'"
        )
    return "domains" if domains else "classes"


def class_folders(base: Path) -> list[str]:
    """Names of the class folders, in whichever layout."""
    names = subfolders(base)
    if guess_layout(base) == "classes":
        return names
    return sorted({inner for name in names for inner in subfolders(base / name)})


def open_folder(
    name: str,
    root: str | Path | None = None,
    *,
    path: str | None = None,
    layout: str = "auto",
    domains: str | Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    size: int | None = 224,
    fit: str = "squash",
    interpolation: str = "bilinear",
    exif: bool = True,
    crop_ratio: float = CROP_RATIO,
    alpha: str = "drop",
) -> Dataset:
    """`<root>/<path>` laid out as `<class>/*` (one domain, "clean") or `<domain>/<class>/*`.

    `classes` fixes the label order, for example to that of a trained model; folders may then be
    fewer. Photographs are turned upright by their EXIF tag unless `exif=False`.
    """
    if layout not in LAYOUTS:
        raise ConfigError(f"layout={layout!r}; one of {', '.join(LAYOUTS)} is expected")
    decoding = Decoding(size, fit, interpolation, exif, crop_ratio, alpha)
    base = data_root(root, f"the image folder {path}" if path else "an image folder")
    if path is not None:
        base = data_root(base / path, "the image folder")
    if (guess_layout(base) if layout == "auto" else layout) == "classes":
        if domains is not None:
            raise ConfigError(
                f"domains={domains!r} were asked for, but {base} holds class folders: it is "
                "one domain, 'clean'"
            )
        places = {"clean": base}
    else:
        there = subfolders(base)
        chosen = there if domains is None else as_names(domains)
        for asked in chosen:
            if asked not in there:
                raise DataError(f"no domain {asked!r} in {base}, which has {listed(there)}")
        places = {domain: base / domain for domain in chosen}
    scans = {domain: scan(place) for domain, place in places.items()}
    if not any(scans.values()):
        raise DataError(
            f"no class folder in {base}; <class>/*.jpg or <domain>/<class>/*.jpg is expected"
        )
    labels = agree(scans, str(base), classes, exact=classes is None)
    if classes is None and domains is None:
        empty = [c for c in labels if not any(found[c] for found in scans.values())]
        if empty and len(empty) < len(labels):
            raise DataError(
                f"no image of class {listed(empty)} in {base}; an empty folder would shift the "
                "labels of the classes after it: remove it, or pass classes="
            )
    found = [file_domain(d, places[d], scans[d], labels, decoding) for d in places]
    return Dataset(name, labels, found, root=str(base))
