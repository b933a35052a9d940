"""Finding data folders and listing images in them: `<domain>/<class>/*.jpg` and `<class>/*.jpg`.

Only directory entries are read: no image is opened and no file is stat-ed, so that 586,575 files
take seconds.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..errors import ConfigError, DataError, FrettaWarning
from ..models.preprocessing import Decoding
from .domain import Domain, ImageFiles
from .images import EXTENSIONS

VERIFY = ("warn", "error", "off")
_LISTED = 8  # names shown in a message before it says "and n more"


def complain(verify: str, text: str) -> None:
    """A deviation that can be worked with: warned about, fatal or ignored, as asked."""
    if verify not in VERIFY:
        raise ConfigError(f"verify={verify!r}; one of {', '.join(VERIFY)} is expected")
    if verify == "error":
        raise DataError(text)
    if verify == "warn":
        warnings.warn(text, FrettaWarning, stacklevel=3)


def listed(names: Iterable[str]) -> str:
    """`a, b, c` with the rest counted."""
    found = list(names)
    rest = len(found) - _LISTED
    return ", ".join(found[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def plain(name: str) -> str:
    """A folder name without case, blanks, dashes: Real World = RealWorld = real_world."""
    return "".join(c for c in name.casefold() if c not in " _-")


def subfolders(folder: Path) -> list[str]:
    """Sorted names of the visible folders in `folder`."""
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if not _hidden(e.name) and e.is_dir()]
    except OSError as error:
        raise DataError(f"cannot list {folder}: {error.strerror or error}") from error
    return sorted(names)


def _hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def data_root(root: str | Path | None, what: str) -> Path:
    """The folder to look in: the argument, else FRETTA_DATA."""
    given = root if root is not None else os.environ.get("FRETTA_DATA")
    if not given:
        raise DataError(
            f"no place to look for {what}: give root=, or set FRETTA_DATA, to the folder that holds"
            " it"
        )
    path = Path(given).expanduser()
    if not path.is_dir():
        origin = "the folder given" if root is not None else "FRETTA_DATA"
        raise DataError(
            f"{what} was looked for in {path} ({origin}), which "
            f"{'is not a folder' if path.exists() else 'does not exist'}"
        )
    return path


def locate(
    root: Path,
    what: str,
    folders: Sequence[str],
    fits: Callable[[Path], bool],
    wanted: str,
    hint: str = "",
) -> Path:
    """The first of root/<folder>, root/<folder>/<folder> and root itself that `fits`."""
    known = {plain(name): rank for rank, name in reversed([*enumerate(folders)])}
    looked: list[Path] = []
    there = [name for name in subfolders(root) if plain(name) in known]
    places = [root / name for name in sorted(there, key=lambda name: known[plain(name)])]
    for place in places:
        deeper = [place / name for name in subfolders(place) if plain(name) in known]
        for candidate in (place, *deeper):
            looked.append(candidate)
            if fits(candidate):
                return candidate
    looked.append(root)
    if fits(root):
        return root
    absent = [] if places else [str(root / name) for name in folders[:1]]
    raise DataError(
        f"{what} was not found: {wanted} was looked for in "
        f"{', '.join([*absent, *map(str, looked)])}{hint}"
    )


def has_images(folder: Path) -> bool:
    """Whether there is an image directly in `folder`."""
    try:
        with os.scandir(folder) as entries:
            return any(e.name.lower().endswith(EXTENSIONS) and not _hidden(e.name) for e in entries)
    except OSError as error:
        raise DataError(f"cannot list {folder}: {error.strerror or error}") from error


def scan_class(folder: Path, prefix: str) -> list[str]:
    """Image files below one class folder, sorted, as `prefix/name`."""
    found: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if _hidden(entry.name):
                    continue
                if entry.name.lower().endswith(EXTENSIONS):
                    found.append(f"{prefix}/{entry.name}")
                elif entry.is_dir(follow_symlinks=False):  # a link could lead in circles
                    found += scan_class(Path(entry.path), f"{prefix}/{entry.name}")
    except OSError as error:
        raise DataError(f"cannot list {folder}: {error.strerror or error}") from error
    return sorted(found)


def visible_files(folder: Path) -> Iterator[str]:
    """Every file below `folder` but hidden ones; links to folders are not followed."""
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not _hidden(name)]
        yield from (os.path.join(place, name) for name in files if not _hidden(name))


def scan(folder: Path) -> dict[str, list[str]]:
    """Class folder -> image files relative to `folder`."""
    names = subfolders(folder)
    check_duplicates(names, str(folder))
    return {name: scan_class(folder / name, name) for name in names}


def check_duplicates(names: Iterable[str], where: str) -> None:
    """Dog and dog are one class on some disks and two on others: refuse both."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise DataError(
                f"{where} has two folders for one class, {other!r} and {name!r}; labels would "
                "depend on the file system: merge or rename one of them"
            )


def agree(
    scans: Mapping[str, Mapping[str, Sequence[str]]],
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
        expected, told = list(scans[reference]), f"domain {reference!r}"
    else:
        check_duplicates(classes, "the list of classes")
        expected, told = list(classes), "the class list"
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
                f"class names do not match: domain {name!r} in {where} {' and '.join(parts)} "
                f"(compared with {told}, {len(expected)} classes); labels are positions in the "
                "sorted class list, so the folders must agree"
            )
    return expected


def file_domain(
    name: str,
    folder: Path,
    found: Mapping[str, Sequence[str]],
    classes: Sequence[str],
    decoding: Decoding,
    corruption: str | None = None,
    severity: float | None = None,
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
    labels = np.asarray(numbers, dtype=np.int64)
    return Domain(name, labels, source, rows, corruption=corruption, severity=severity)
