"""corrupt_folder(): the corrupted version of a data set, written to disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._util import atomic
from ..corruptions import corrupt
from ..corruptions.base import pillow_image
from ..corruptions.weather import photographs
from ..errors import ConfigError, DataError
from ..models.preprocessing import Decoding
from .cifar import check_array, map_array
from .cifar_pickle import read_batch
from .domain import check_choice, check_integer
from .images import EXTENSIONS, ORIENTATION, opened, orientation_of, pixels_of
from .shift import CONSTANTS, SEVERITIES, corruption_names, severity_levels
from .workers import ahead

Progress = Callable[[int, int], None]  # (images done, images in total)
Pixels = NDArray[np.uint8]

MANIFEST = "severities.json"
CIFAR_BATCHES = ("test_batch", "test")  # CIFAR-10, CIFAR-100
CIFAR_CHUNK, FILE_CHUNK = 500, 16  # images in one task
SUFFIXES = tuple(suffix for suffix in EXTENSIONS if suffix != ".pgm")  # a .pgm holds no color
# Pillow's options by suffix: JPEG at quality 95, everything else without loss.
SAVE: dict[str, dict[str, Any]] = {
    ".jpg": {"quality": 95},
    ".jpeg": {"quality": 95},
    ".webp": {"lossless": True},
}


@dataclass
class Summary:
    """What `corrupt_folder` did, in images (one for each corruption and severity)."""

    layout: str  # "cifar" or "images"
    folder: Path
    written: int = 0
    kept: int = 0  # already there
    unreadable: list[str] = field(default_factory=list)  # sources skipped, one "path: reason" each


@dataclass(frozen=True)
class Job:
    """What to write where. Plain data: it travels to the workers."""

    source: Path
    folder: Path
    names: tuple[str, ...]
    severities: tuple[int, ...]
    seed: int
    constants: str | None
    errors: str

    def corrupt(self, images: Pixels, name: str, severity: int, indices: Sequence[int]) -> Pixels:
        return corrupt(
            images, name, severity, seed=self.seed, indices=indices, constants=self.constants
        )


def corrupt_folder(
    src: str | Path,
    dst: str | Path,
    corruptions: str | Sequence[str] = "all",
    severities: int | Sequence[int] = (1, 2, 3, 4, 5),
    *,
    seed: int = 0,
    jobs: int = 1,
    progress: Progress | None = None,
    constants: str | None = None,
    errors: str = "raise",
) -> Summary:
    """Write the corrupted version of `src` to `dst`.

    A CIFAR folder (its test batch) becomes the CIFAR-C layout; any other folder of images, however
    nested, the ImageNet-C layout. Run again to continue: what is complete is kept. The files are
    the same for any number of `jobs`.

    corruptions  names, or "all" (the 15 of the benchmark), or "extra" (the other four)
    progress     called with (images done, images in total)
    errors       unreadable images: "raise" a DataError that names the file, or "skip" them and list
                 them in the summary
    """
    source, folder = Path(src), Path(dst)
    names = corruption_names(corruptions)
    levels = tuple(sorted(int(level) for level in severity_levels(severities)))
    check_choice("constants", constants, CONSTANTS)
    check_choice("errors", errors, ("raise", "skip"))
    check_integer("jobs", jobs, 1)
    if not source.is_dir():
        raise DataError(f"there is no folder {source}; give a CIFAR folder or a folder of images")
    if folder.resolve().is_relative_to(source.resolve()):
        raise ConfigError(f"{folder} lies inside {source}; choose a folder outside")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; a folder is expected")
    if "frost" in names:
        photographs()  # warns here, once, if they are missing
    job = Job(source, folder, names, levels, int(seed), constants, errors)
    report = progress or (lambda done, total: None)
    workers = jobs if jobs > 1 else 0
    batch = next((source / name for name in CIFAR_BATCHES if (source / name).is_file()), None)
    if batch is not None:
        return _write_cifar(batch, job, workers, report)
    return _write_images(job, workers, report)


class Manifest:
    """`severities.json`: how the folder was made and, of arrays, which severities are complete.

    A folder is continued only with the seed and constants it was begun with.
    """

    def __init__(self, layout: str, job: Job, **facts: Any) -> None:
        self.path = job.folder / MANIFEST
        self.made = {"layout": layout, "seed": job.seed, "constants": job.constants, **facts}
        self.complete: dict[str, list[int]] = {}
        if not self.path.is_file():
            return
        try:
            found = json.loads(self.path.read_text())
            self.complete = {k: [int(s) for s in v] for k, v in found.pop("complete", {}).items()}
        except (ValueError, AttributeError, TypeError) as error:
            raise DataError(
                f"{self.path} is damaged ({error}); remove the folder and start again"
            ) from error
        if found != self.made:
            raise DataError(
                f"{job.folder} was begun with {found}, and this run has {self.made}; choose "
                "another folder, or the same settings"
            )

    def write(self) -> None:
        complete = {"complete": self.complete} if self.complete else {}
        with atomic(self.path) as draft:
            draft.write_text(json.dumps({**self.made, **complete}, indent=1) + "\n")


# ---- the CIFAR-C layout: a .npy for each corruption, severities 1 to 5 stacked, and labels.npy ---


def _corrupt_rows(job: Job, images: Pixels, task: tuple[str, int, int]) -> Pixels:
    """Some rows of the test batch, from `start` on. Runs in a worker."""
    name, severity, start = task
    part = images[start : start + CIFAR_CHUNK]
    return job.corrupt(part, name, severity, range(start, start + len(part)))


def _write_cifar(batch: Path, job: Job, workers: int, progress: Progress) -> Summary:
    """Every array has room for all five severities, at their usual places. Those that are not
    written stay zero (and take no room on disk); the manifest lists the complete ones."""
    images, labels = read_batch(batch)
    block = len(images)
    digest = blake2b(images.tobytes(), digest_size=8).hexdigest()
    manifest = Manifest("cifar", job, images=block, pixels=digest)
    summary = Summary("cifar", job.folder)
    if not (job.folder / "labels.npy").is_file():
        with atomic(job.folder / "labels.npy") as draft:
            np.save(draft, np.tile(labels, len(SEVERITIES)))
    before: dict[str, list[int]] = {}
    tasks: dict[str, list[tuple[str, int, int]]] = {}
    for name in job.names:
        before[name] = []
        if (job.folder / f"{name}.npy").is_file():  # one that the manifest lacks is complete
            before[name] = manifest.complete.get(name, list(SEVERITIES))
        todo = [severity for severity in job.severities if severity not in before[name]]
        starts = range(0, block, CIFAR_CHUNK)
        tasks[name] = [(name, severity, start) for severity in todo for start in starts]
        summary.kept += block * (len(job.severities) - len(todo))
    total = block * len(job.names) * len(job.severities)
    progress(summary.kept, total)
    every_task = [task for name in job.names for task in tasks[name]]
    parts = ahead(partial(_corrupt_rows, job, images), every_task, workers, quiet=True)
    shape = (len(SEVERITIES) * block, *images.shape[1:])
    try:
        for name in (name for name in job.names if tasks[name]):
            path = job.folder / f"{name}.npy"
            manifest.complete[name] = before[name]
            manifest.write()
            with atomic(path) as draft:
                array = np.lib.format.open_memmap(draft, mode="w+", dtype=np.uint8, shape=shape)
                for severity in before[name]:
                    check_array(path, block)
                    old = slice((severity - 1) * block, severity * block)
                    array[old] = map_array(path)[old]
                for _, severity, start in tasks[name]:
                    part = next(parts)
                    first = (severity - 1) * block + start
                    array[first : first + len(part)] = part
                    summary.written += len(part)
                    progress(summary.written + summary.kept, total)
                array.flush()
                del array
            manifest.complete[name] = sorted({*before[name], *(task[1] for task in tasks[name])})
            manifest.write()
    finally:
        parts.close()
    return summary


# ---- the ImageNet-C layout: <corruption>/<severity>/<path of the source> -------------------------


def _corrupt_files(job: Job, files: list[str]) -> tuple[int, int, list[str]]:
    """Images written, images already there, and the sources that could not be read, of a few files
    under every corruption. Runs in a worker."""
    pillow = pillow_image("writing images")
    copies = [(n, s, file) for n in job.names for s in job.severities for file in files]
    paths = {copy: job.folder / copy[0] / str(copy[1]) / copy[2] for copy in copies}
    todo = [copy for copy in copies if not paths[copy].is_file()]
    images: dict[str, Pixels] = {}
    turned: dict[str, dict[str, Any]] = {}  # as the source is: its pixels stay as they lie
    unreadable: list[str] = []
    for file in dict.fromkeys(file for _, _, file in todo):
        try:
            with opened(str(job.source / file)) as image:
                images[file] = pixels_of(image, Decoding(size=None))
                turned[file] = _tag(pillow, orientation_of(image))
        except DataError as error:
            if job.errors == "raise":
                raise DataError(f"{error}; errors='skip' leaves such files out") from error
            unreadable.append(f"{job.source / file}: {error.__cause__ or error}")
    todo = [copy for copy in todo if copy[2] in images]
    for copy in todo:
        name, severity, file = copy
        # A file's randomness comes from its path: other files may come and go.
        path = file.encode("utf-8", "surrogateescape")
        index = int.from_bytes(blake2b(path, digest_size=7).digest(), "little")
        pixels = job.corrupt(images[file][None], name, severity, [index])[0]
        with atomic(paths[copy]) as draft:
            options = {**SAVE.get(draft.suffix.lower(), {}), **turned[file]}
            pillow.fromarray(pixels).save(draft, **options)
    each = len(job.names) * len(job.severities)
    return len(todo), len(copies) - len(todo) - each * len(unreadable), unreadable


def _tag(pillow: Any, orientation: int | None) -> dict[str, Any]:
    """Pillow's option that writes the EXIF tag."""
    if orientation is None:
        return {}
    exif = pillow.Exif()
    exif[ORIENTATION] = orientation
    return {"exif": exif}


def _write_images(job: Job, workers: int, progress: Progress) -> Summary:
    files = sorted(
        path.relative_to(job.source).as_posix()
        for path in job.source.rglob("*")
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    )
    if not files:
        raise DataError(
            f"{job.source} holds neither a CIFAR test batch (test_batch or test) nor any image file"
            f" ({', '.join(SUFFIXES)}) at any depth"
        )
    Manifest("images", job).write()
    summary = Summary("images", job.folder)
    each = len(job.names) * len(job.severities)
    tasks = [files[start : start + FILE_CHUNK] for start in range(0, len(files), FILE_CHUNK)]
    for written, kept, unreadable in ahead(
        partial(_corrupt_files, job), tasks, workers, quiet=True
    ):
        summary.written += written
        summary.kept += kept
        summary.unreadable += unreadable
        done = summary.written + summary.kept + each * len(summary.unreadable)
        progress(done, each * len(files))
    return summary
