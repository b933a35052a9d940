"""Folders of images: `<class>/*.jpg` and `<domain>/<class>/*.jpg`.

Only directory entries are read: no image is opened and no file is stat-ed, so that 586,575 files
take seconds.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..errors import ConfigError, DataError, FrettaWarning
from ..models.preprocessing import CROP_RATIO, Decoding
from .domain import Dataset, Domain, ImageFiles, as_names, check_choice
from .images import EXTENSIONS

_LISTED = 8  # names shown in a message before it says "and n more"
Scan = dict[str, list[str]]  # class folder -> image files, relative to the folder scanned


def check_known(fits: bool, verify: str, text: str) -> None:
    """A deviation from what is known of a data set: a warning, an error or ignored."""
    check_choice("verify", verify, ("warn", "error", "off"))
    if not fits and verify == "error":
        raise DataError(text)
    if not fits and verify == "warn":
        warnings.warn(text, FrettaWarning, stacklevel=4)


def listed(names: Iterable[str]) -> str:
    """`a, b, c` with the rest counted."""
    found = list(names)
    rest = len(found) - _LISTED
    return ", ".join(found[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def fold_name(name: str) -> str:
    """A name without case, blanks, dashes: Real World = RealWorld = real_world."""
    return "".join(c for c in name.casefold() if c not in " _-")


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# ---- finding a data set ------------------------------------------------------------------------


def data_root(root: str | Path | None, what: str) -> Path:
    """The folder to look in: the argument, else FRETTA_DATA."""
    given = root if root is not None else os.environ.get("FRETTA_DATA")
    if not given:
        raise DataError(f"no place to look for {what}: give root=, or set FRETTA_DATA")
    path = Path(given).expanduser()
    if not path.is_dir():
        origin = "the folder given" if root is not None else "FRETTA_DATA"
        raise DataError(
            f"{what} was looked for in {path} ({origin}), which "
            f"{'is not a folder' if path.exists() else 'does not exist'}"
        )
    return path


def locate(
    root: str | Path | None,
    what: str,
    folders: Sequence[str],
    fits: Callable[[Path], bool],
    wanted: str,
    hint: str = "",
) -> Path:
    """The first of root/<folder>, root/<folder>/<folder> and root itself that `fits`."""
    base = data_root(root, what)
    known = [fold_name(name) for name in folders]
    named = [name for name in subfolders(base) if fold_name(name) in known]
    looked = []
    for name in sorted(named, key=lambda name: known.index(fold_name(name))):
        place = base / name
        looked.append(place)
        looked += [place / inner for inner in subfolders(place) if fold_name(inner) in known]
    looked.append(base)
    for place in looked:
        if fits(place):
            return place
    absent = [] if named else [base / folders[0]]
    raise DataError(
        f"{what} was not found: {wanted} was looked for in "
        f"{', '.join(map(str, [*absent, *looked]))}{hint}"
    )


# ---- listing -----------------------------------------------------------------------------------


@contextmanager
def _entries(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    """The visible entries of a folder."""
    try:
        with os.scandir(folder) as entries:
            yield (entry for entry in entries if not _hidden(entry.name))
    except OSError as error:
        raise DataError(f"cannot list {folder}: {error.strerror or error}") from error


def _hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def subfolders(folder: Path) -> list[str]:
    """Sorted names of the visible folders in `folder`."""
    with _entries(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def has_images(folder: Path) -> bool:
    """Whether there is an image directly in `folder`."""
    with _entries(folder) as entries:
        return any(entry.name.lower().endswith(EXTENSIONS) for entry in entries)


def scan(folder: Path) -> Scan:
    """The image files of each class folder, sorted."""
    names = subfolders(folder)
    _check_duplicates(names, str(folder))
    return {name: _images_below(folder / name, name) for name in names}


def _images_below(folder: Path, prefix: str) -> list[str]:
    found: list[str] = []
    with _entries(folder) as entries:
        for entry in entries:
            if entry.name.lower().endswith(EXTENSIONS):
                found.append(f"{prefix}/{entry.name}")
            elif entry.is_dir(follow_symlinks=False):  # a link could lead in circles
                found += _images_below(Path(entry.path), f"{prefix}/{entry.name}")
    return sorted(found)


def visible_files(folder: Path) -> Iterator[str]:
    """Every file below `folder` but hidden ones; links to folders are not followed."""
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not _hidden(name)]
        yield from (os.path.join(place, name) for name in files if not _hidden(name))


# ---- classes and domains -----------------------------------------------------------------------


def _check_duplicates(names: Iterable[str], where: str) -> None:
    """Dog and dog are one class on some disks and two on others: refuse both."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise DataError(
                f"{where} has two folders for one class, {other!r} and {name!r}; merge them or "
                "rename one"
            )


def common_classes(
    scans: Mapping[str, Scan],
    where: str,
    classes: Sequence[str] | None = None,
    exact: bool = True,
) -> list[str]:
    """The class list of several domains, in label order; DataError where they do not match.

    Without `classes` every domain must have the same class folders. With them, folders are matched
    without regard to case; `exact` also demands that no class is missing.
    """
    if classes is None:
        reference = next(iter(scans))
        expected, origin = list(scans[reference]), f"domain {reference!r}"
    else:
        _check_duplicates(classes, "the list of classes")
        expected, origin = list(classes), "the class list"
    # Case only matters between the domains of an unknown set: nothing says which one is right.
    fold: Callable[[str], str] = str if classes is None else str.casefold
    known = {fold(name) for name in expected}
    for name, found in scans.items():
        extra = [c for c in found if fold(c) not in known]
        seen = {fold(c) for c in found}
        lacking = [c for c in expected if fold(c) not in seen] if exact else []
        if extra or lacking:
            parts = [f"lacks {listed(lacking)}"] if lacking else []
            parts += [f"has {listed(extra)} as well"] if extra else []
            raise DataError(
                f"class names do not match: domain {name!r} in {where} {' and '.join(parts)}, "
                f"compared with {origin} ({len(expected)} classes)"
            )
    return expected


def file_domain(
    name: str, folder: Path, found: Scan, classes: Sequence[str], decoding: Decoding
) -> Domain:
    """A domain over the files of `scan(folder)`."""
    label = {c.casefold(): i for i, c in enumerate(classes)}
    files = [file for names in found.values() for file in names]
    numbers = [label[c.casefold()] for c, names in found.items() for _ in names]
    if not files:
        raise DataError(
            f"domain {name!r} is empty: no image below {folder} "
            f"({len(found)} class folders; {', '.join(EXTENSIONS)} are looked for)"
        )
    source = ImageFiles(str(folder), tuple(files), decoding)
    rows = np.arange(len(files), dtype=np.int64)
    return Domain(name, np.asarray(numbers, dtype=np.int64), source, rows)


def file_domains(
    places: Mapping[str, Path],
    base: Path,
    decoding: Decoding,
    classes: Sequence[str] | None = None,
) -> tuple[list[Domain], list[str]]:
    """A domain per folder, and the classes they share, which are `classes` if these are known."""
    scans = {name: scan(place) for name, place in places.items()}
    labels = common_classes(scans, str(base), classes)
    return [file_domain(d, places[d], scans[d], labels, decoding) for d in places], labels


# ---- any folder of images ----------------------------------------------------------------------


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
    """Names of the class folders, in either layout."""
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
    check_choice("layout", layout, ("auto", "classes", "domains"))
    decoding = Decoding(size, fit, interpolation, exif, crop_ratio, alpha)
    base = data_root(root, f"the image folder {path}" if path else "an image folder")
    if path is not None:
        base = data_root(base / path, "the image folder")
    if (guess_layout(base) if layout == "auto" else layout) == "classes":
        if domains is not None:
            raise ConfigError(f"domains={domains!r}: {base} holds classes of one domain, 'clean'")
        places = {"clean": base}
    else:
        present = subfolders(base)
        chosen = present if domains is None else as_names(domains)
        places = {domain: base / domain for domain in chosen}
        for domain in places:
            if domain not in present:
                raise DataError(f"no domain {domain!r} in {base}, which has {listed(present)}")
    scans = {domain: scan(place) for domain, place in places.items()}
    if not any(scans.values()):
        raise DataError(
            f"no class folder in {base}; <class>/*.jpg or <domain>/<class>/*.jpg is expected"
        )
    labels = common_classes(scans, str(base), classes, exact=classes is None)
    if classes is None and domains is None:
        empty = [c for c in labels if not any(found[c] for found in scans.values())]
        if empty and len(empty) < len(labels):
            raise DataError(
                f"no image of class {listed(empty)} in {base}; an empty folder would shift the "
                "labels of the classes after it: remove it, or pass classes="
            )
    found = [file_domain(d, places[d], scans[d], labels, decoding) for d in places]
    return Dataset(name, labels, found, root=str(base))
