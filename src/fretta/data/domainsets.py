"""PACS, OfficeHome, VLCS and DomainNet: `<folder>/<domain>/<class>/*.jpg`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError, DataError
from ..models.preprocessing import CROP_RATIO, Decoding
from .domain import Dataset, as_names
from .folders import check_known, file_domains, fold_name, listed, locate, subfolders, words


@dataclass(frozen=True)
class DomainSet:
    """What is known of a published domain set."""

    title: str
    folders: tuple[str, ...]  # names the folder goes by, compared without case, blanks and dashes
    counts: dict[str, int]  # images per domain, in the order the papers list the domains
    classes: tuple[str, ...] | None  # in label order; None where only their number is checked
    class_count: int

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(self.counts)


PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
VLCS_CLASSES = ("bird", "car", "chair", "dog", "person")
# Sorted by code point, as label numbers are: TV comes before Table.
OFFICEHOME_CLASSES = words("""
    Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles Chair
    Clipboards Computer Couch Curtains Desk_Lamp Drill Eraser Exit_Sign Fan File_Cabinet Flipflops
    Flowers Folder Fork Glasses Hammer Helmet Kettle Keyboard Knives Lamp_Shade Laptop Marker
    Monitor Mop Mouse Mug Notebook Oven Pan Paper_Clip Pen Pencil Postit_Notes Printer Push_Pin
    Radio Refrigerator Ruler Scissors Screwdriver Shelf Sink Sneakers Soda Speaker Spoon TV Table
    Telephone ToothBrush Toys Trash_Can Webcam
    """)

DOMAIN_SETS: dict[str, DomainSet] = {
    "pacs": DomainSet(
        title="PACS",
        folders=("PACS", "pacs_data", "kfold"),
        counts={"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929},
        classes=PACS_CLASSES,
        class_count=7,
    ),
    "officehome": DomainSet(
        title="OfficeHome",
        folders=("OfficeHome", "OfficeHomeDataset_10072016", "OfficeHomeDataset"),
        counts={"Art": 2427, "Clipart": 4365, "Product": 4439, "Real World": 4357},
        classes=OFFICEHOME_CLASSES,
        class_count=65,
    ),
    "vlcs": DomainSet(
        title="VLCS",
        folders=("VLCS",),
        counts={"Caltech101": 1415, "LabelMe": 2656, "SUN09": 3282, "VOC2007": 3376},
        classes=VLCS_CLASSES,
        class_count=5,
    ),
    "domainnet": DomainSet(
        title="DomainNet",
        folders=("DomainNet",),
        counts={
            "clipart": 48129,
            "infograph": 51605,
            "painting": 72266,
            "quickdraw": 172500,
            "real": 172947,
            "sketch": 69128,
        },
        classes=None,
        class_count=345,
    ),
}


def find_domains(facts: DomainSet, root: str | Path | None) -> tuple[Path, dict[str, Path]]:
    """The data set's folder and, for each known domain that is present, its folder."""
    known = {fold_name(name): name for name in facts.domains}
    base = locate(
        root,
        facts.title,
        facts.folders,
        lambda folder: any(fold_name(name) in known for name in subfolders(folder)),
        f"a folder with any of {', '.join(facts.domains)}",
    )
    present: dict[str, Path] = {}
    for name in subfolders(base):
        domain = known.get(fold_name(name))
        if domain in present:
            both = f"{present[domain].name!r} and {name!r}"
            raise DataError(f"{base} has two folders for domain {domain!r}: {both}; keep one")
        if domain is not None:
            present[domain] = base / name
    return base, present


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
    known = {fold_name(domain): domain for domain in facts.domains}
    wanted = None if domains is None else as_names(domains)
    for domain in wanted or ():
        if fold_name(domain) not in known:
            raise ConfigError(
                f"{facts.title} has no domain {domain!r}; it has {', '.join(facts.domains)}"
            )
    base, present = find_domains(facts, root)
    chosen = [domain for domain in facts.domains if domain in present]
    if wanted is not None:
        chosen = [known[fold_name(domain)] for domain in wanted]
    absent = [domain for domain in chosen if domain not in present]
    if absent:
        raise DataError(
            f"{facts.title} domain {listed(absent)} is missing: no folder of that name in {base}, "
            f"which has {', '.join(present) or 'none of them'}"
        )
    found, classes = file_domains({d: present[d] for d in chosen}, base, decoding, facts.classes)
    if len(classes) != facts.class_count:
        raise DataError(
            f"{facts.title} has {facts.class_count} classes, but {base} has {len(classes)}: "
            f"{listed(classes)}"
        )
    wrong = [
        f"{d.name} {len(d):,} (known: {facts.counts[d.name]:,})"
        for d in found
        if len(d) != facts.counts[d.name]
    ]
    check_known(
        not wrong,
        verify,
        f"{facts.title} in {base} does not have the known number of images: {listed(wrong)}; "
        "results are not comparable with published ones (verify='off' silences this)",
    )
    missing = tuple(domain for domain in facts.domains if domain not in present)
    return Dataset(name, classes, found, root=str(base), missing=missing)
