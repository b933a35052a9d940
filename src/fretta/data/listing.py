"""Which images: a folder, a list of paths, or paths that arrive on a stream.

Every path is resolved, links included, and must lie below the root: the folder itself, the folder
of the list, or for paths that arrive the current folder. A list from elsewhere can therefore not
make the command read other files of this machine, unless `outside` allows it.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import DataError
from .images import EXTENSIONS

SUFFIXES = (*EXTENSIONS, ".gif")
# How image files begin; a path may begin with BM too.
IMAGE = re.compile(rb"\xff\xd8|\x89PNG|GIF8[79]a|RIFF....WEBP|BM....\0\0\0\0", re.DOTALL)


@dataclass
class Listing:
    """Names of images, relative to the root or as a list gives them, and what was left out."""

    root: str
    names: list[str] = field(default_factory=list)
    ignored: int = 0  # files that are no images by their name
    links: int = 0  # links that lead outside
    folders: set[str] = field(default_factory=set)  # that hold images

    def path(self, name: str) -> str:
        return os.path.join(self.root, name)


def inside(path: str, root: str) -> bool:
    """Whether a path, with all links followed, is or lies below `root`, a resolved folder."""
    real = os.path.realpath(path)
    return real == root or real.startswith(root.rstrip(os.sep) + os.sep)


def list_folder(folder: Path, outside: bool = False) -> Listing:
    """Every image below a folder, sorted. Hidden files are left out; no folder is seen twice."""
    if not folder.is_dir():
        raise DataError(
            f"there is no folder {str(folder)!r}; give a folder of images, a text file with a path"
            " per line, or - to read paths from the standard input"
        )
    found = Listing(os.path.realpath(folder))
    seen: set[tuple[int, int]] = set()
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        place = os.path.join(found.root, prefix)
        try:
            facts = os.stat(place)
            with os.scandir(place) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            raise DataError(f"cannot list {place!r}: {error.strerror or error}") from error
        if (facts.st_dev, facts.st_ino) in seen:  # a link led in a circle
            continue
        seen.add((facts.st_dev, facts.st_ino))
        waiting += reversed(_scan(prefix, entries, found, outside))
    found.names.sort()
    return found


def _scan(prefix: str, entries: list[os.DirEntry[str]], found: Listing, outside: bool) -> list[str]:
    """Take the images of one folder; returns the folders below it, linked ones last."""
    real: list[str] = []
    linked: list[str] = []
    for entry in entries:
        name = f"{prefix}{entry.name}"
        if entry.name.startswith(".") or entry.name == "__MACOSX":
            continue
        link = entry.is_symlink()
        if _is_folder(entry):
            if not link:
                real.append(f"{name}/")
            elif inside(entry.path, found.root):
                continue  # its images are listed where they are
            elif outside:
                linked.append(f"{name}/")
            else:
                found.links += 1
        elif not entry.name.lower().endswith(SUFFIXES):
            found.ignored += 1
        elif link and not outside and not inside(entry.path, found.root):
            found.links += 1
        else:
            found.names.append(name)
            found.folders.add(os.path.dirname(name))
    return real + linked


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def read_list(file: Path, root: Path | None, outside: bool = False, null: bool = False) -> Listing:
    """The paths in a text file, one per line (or separated by NUL), in its order."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read the list {str(file)!r}: {error.strerror}") from error
    if IMAGE.match(content):
        raise DataError(
            f"{str(file)!r} is an image, not a list of images; give the folder it is in"
        )
    found = Listing(os.path.realpath(root if root is not None else file.absolute().parent))
    separator = b"\0" if null else b"\n"
    found.names = list(checked(content.split(separator), found.root, outside, null, str(file)))
    found.folders = {os.path.dirname(name) for name in found.names}
    return found


def checked(
    entries: Iterable[bytes], root: str, outside: bool, null: bool, where: str
) -> Iterator[str]:
    """Entries of a list as names; one that leads outside the root is refused by its number."""
    for number, entry in enumerate(entries, 1):
        if number == 1 and not null:  # editors put it in front of text
            entry = entry.removeprefix(codecs.BOM_UTF8)
        name = os.fsdecode(entry if null else entry.rstrip(b"\r"))
        if not name.strip():
            continue
        if "\0" in name:
            if entry.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise DataError(
                    f"{where} is UTF-16 text, whose bytes are no paths; write it as UTF-8"
                )
            raise DataError(
                f"{where}, entry {number}: it has a NUL byte, which no path has; write a path per"
                " line, or tell that NUL separates them, as find -print0 does (adapt: --null)"
            )
        if not outside and not inside(os.path.join(root, name), root):
            raise DataError(
                f"{where}, entry {number}: {shown(name)} lies outside {shown(root)}; give --root"
                " with the folder that holds all images, or trust the list (adapt: --allow-outside)"
            )
        yield name


def shown(name: str) -> str:
    """A name for people: valid text on one line, whatever bytes the file system holds."""
    return repr(name.encode("utf-8", "backslashreplace").decode())
