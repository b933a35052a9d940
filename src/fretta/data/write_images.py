"""The ImageNet-C layout: `<corruption>/<severity>/<path of the source>`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from .._util import atomic
from ..corruptions.base import Pixels
from ..corruptions.engine import corrupt
from ..corruptions.extras import pillow_image
from ..errors import DataError
from ..models.preprocessing import Decoding
from .images import decode
from .write import Order, Progress, Record, Summary, Workers

__all__ = ["find_images", "write_images"]

# How a file is written, by its suffix: JPEG at quality 95, everything else without loss.
SAVE: dict[str, dict[str, Any]] = {
    ".jpg": {"format": "JPEG", "quality": 95},
    ".jpeg": {"format": "JPEG", "quality": 95},
    ".png": {"format": "PNG"},
    ".bmp": {"format": "BMP"},
    ".ppm": {"format": "PPM"},
    ".webp": {"format": "WEBP", "lossless": True},
    ".tif": {"format": "TIFF"},
    ".tiff": {"format": "TIFF"},
}
CHUNK = 16  # files in one task


def find_images(source: Path) -> list[str]:
    """Every image file below `source`, as sorted relative paths."""
    return sorted(
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.suffix.lower() in SAVE and not path.name.startswith(".") and path.is_file()
    )


@dataclass(frozen=True)
class _Done:
    written: int
    kept: int
    unreadable: list[str]


def _index(name: str) -> int:
    """A file's randomness comes from its path: other files may come and go."""
    return int.from_bytes(blake2b(name.encode(), digest_size=7).digest(), "little")


def _some(source: Path, folder: Path, names: list[str], order: Order, errors: str) -> _Done:
    """A few files, all their corruptions. One corruption goes over all files before the next."""
    opener = pillow_image("writing images")
    wanted = [(name, severity) for name in order.names for severity in order.severities]
    there = {
        (name, severity, file)
        for name, severity in wanted
        for file in names
        if (folder / name / str(severity) / file).is_file()
    }
    images: dict[str, Pixels] = {}
    unreadable: list[str] = []
    for file in names:
        if all((name, severity, file) in there for name, severity in wanted):
            continue
        try:
            images[file] = decode(str(source / file), Decoding(size=None))
        except DataError as error:
            if errors == "raise":
                raise DataError(f"{error}; errors='skip' leaves such files out") from error
            unreadable.append(f"{source / file}: {error.__cause__ or error}")
    written = 0
    for name, severity in wanted:
        for file, image in images.items():
            if (name, severity, file) in there:
                continue
            result = corrupt(
                image[None],
                name,
                severity,
                seed=order.seed,
                indices=np.array([_index(file)]),
                constants=order.constants,
            )[0]
            path = folder / name / str(severity) / file
            with atomic(path) as draft:
                opener.fromarray(result).save(draft, **SAVE[path.suffix.lower()])
            written += 1
    return _Done(written, len(there), unreadable)


def write_images(
    source: Path,
    folder: Path,
    order: Order,
    workers: Workers,
    progress: Progress | None,
    errors: str,
) -> Summary:
    files = find_images(source)
    if not files:
        raise DataError(
            f"{source} holds neither a CIFAR test batch (test_batch or test) nor any image file "
            f"({', '.join(SAVE)}) at any depth"
        )
    record = Record(folder, "images", order)
    record.write()
    summary = Summary("images", folder)
    each = len(order.names) * len(order.severities)

    def tasks() -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(files), CHUNK):
            yield source, folder, files[start : start + CHUNK], order, errors

    for done in workers.run(_some, tasks()):
        summary.written += done.written
        summary.kept += done.kept
        summary.unreadable += done.unreadable
        if progress is not None:
            skipped = each * len(summary.unreadable)
            progress(summary.written + summary.kept + skipped, each * len(files))
    for name in order.names:
        record.complete[name] = sorted({*record.complete.get(name, []), *order.severities})
    record.write()
    return summary
