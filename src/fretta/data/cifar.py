"""CIFAR-10 and CIFAR-100, clean and corrupted.

Clean CIFAR is a set of pickles (see cifar_pickle.py) and one domain, `clean`. CIFAR-10-C and
CIFAR-100-C are `<corruption>.npy`, severities 1 to 5 stacked, memory-mapped, and `labels.npy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..corruptions import ALL
from ..errors import DataError
from ..models.preprocessing import check_size
from .cifar_pickle import read_batches, read_classes
from .domain import Dataset, Domain, check_choice
from .folders import check_known, listed, locate, words
from .order import long_tail
from .shift import SEVERITIES, corruption_names, domain_name, severity_levels

CIFAR_IMAGES = {"train": 50000, "test": 10000}
CIFAR10_CLASSES = words("airplane automobile bird cat deer dog frog horse ship truck")
CIFAR100_CLASSES = words("""
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
    camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile
    cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp
    lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
    oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
    spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
    train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """)


@dataclass(frozen=True)
class CifarFacts:
    """File names and classes; the folder of the corrupted arrays is `<title>-C`."""

    title: str
    folder: str  # of the pickles
    meta: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    classes: tuple[str, ...]


_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
CIFAR = {
    "cifar10": CifarFacts(
        "CIFAR-10", "cifar-10-batches-py", "batches.meta", _TRAIN, ("test_batch",), CIFAR10_CLASSES
    ),
    "cifar100": CifarFacts(
        "CIFAR-100", "cifar-100-python", "meta", ("train",), ("test",), CIFAR100_CLASSES
    ),
}


@dataclass(frozen=True)
class NpyRows:
    """Source: rows of one `.npy` file.

    The map is made for each read and dropped after it: pages of files that are no longer in use do
    not count toward the memory of the process, however many corruptions a stream visits.
    """

    path: str

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        return np.array(map_array(Path(self.path))[rows], dtype=np.uint8, subok=False)


@dataclass(frozen=True)
class CifarRows:
    """Source: the images of one or more CIFAR pickles, read once per process."""

    paths: tuple[str, ...]

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        return read_batches(self.paths)[0][rows]


# ---- clean CIFAR -------------------------------------------------------------------------------


def find_cifar(facts: CifarFacts, root: str | Path | None) -> Path:
    """The folder with the python batches."""
    names = (*facts.test, *facts.train)
    return locate(
        root,
        facts.title,
        (facts.folder,),
        lambda folder: any((folder / name).is_file() for name in names),
        f"a folder with {' or '.join(names[:2])} (the python version)",
    )


def open_cifar(
    name: str,
    root: str | Path | None = None,
    *,
    split: str = "test",
    size: int | None = None,
    verify: str = "warn",
) -> Dataset:
    """Clean CIFAR: one domain, `clean`."""
    facts = CIFAR[name]
    check_choice("split", split, list(CIFAR_IMAGES))
    check_size(size)
    base = find_cifar(facts, root)
    batches = facts.train if split == "train" else facts.test
    present = [batch for batch in batches if (base / batch).is_file()]
    if not present:
        raise DataError(f"no {split} batch of {facts.title} in {base}: {listed(batches)}")
    classes = read_classes(base / facts.meta)
    paths = tuple(str(base / batch) for batch in present)
    labels = read_batches(paths)[1]
    if len(classes) != len(facts.classes) or labels.max(initial=0) >= len(classes):
        raise DataError(
            f"{base / facts.meta} names {len(classes)} classes and the labels go up to "
            f"{labels.max(initial=0)}; {facts.title} has {len(facts.classes)} classes"
        )
    check_known(
        len(labels) == CIFAR_IMAGES[split],
        verify,
        f"{facts.title} {split} in {base} has {len(labels):,} of {CIFAR_IMAGES[split]:,} "
        f"images ({listed(present)})",
    )
    rows = np.arange(len(labels), dtype=np.int64)
    domain = Domain("clean", labels, CifarRows(paths), rows, size=size)
    return Dataset(name, classes, [domain], root=str(base))


# ---- CIFAR-C -----------------------------------------------------------------------------------


def map_array(path: Path) -> NDArray[Any]:
    """A `.npy` file memory-mapped read-only; DataError where it is damaged or missing."""
    try:
        with path.open("rb") as file:
            if file.read(6) != b"\x93NUMPY":  # np.load would also try archives and pickles
                raise ValueError("it does not begin like one")
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return array
    except FileNotFoundError:
        raise DataError(f"no file {path}") from None
    except (OSError, ValueError, EOFError, TypeError, SyntaxError) as error:
        size = path.stat().st_size if path.is_file() else 0
        raise DataError(
            f"{path} ({size:,} bytes) is truncated or is no .npy array: {error}; extract it again"
        ) from error


def find_cifar_c(facts: CifarFacts, root: str | Path | None) -> Path:
    """The folder with `labels.npy` and the arrays."""
    title = f"{facts.title}-C"
    return locate(
        root,
        title,
        (title,),
        lambda folder: (folder / "labels.npy").is_file(),
        "a folder with labels.npy and <corruption>.npy",
        f"; `fretta corrupt` makes it from clean {facts.title}, and the clean set with "
        "corruption='all' is corrupted while it is read",
    )


def read_labels(base: Path, classes: int) -> NDArray[np.int64]:
    """Labels of one severity. `labels.npy` has them five times; once is accepted, too."""
    path = base / "labels.npy"
    labels: NDArray[Any] = np.array(map_array(path))
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels):
        raise DataError(f"{path} is {labels.dtype} {labels.shape}; a list of integers is expected")
    if labels.min() < 0 or labels.max() >= classes:
        raise DataError(
            f"{path} has labels {labels.min()} to {labels.max()}; 0 to {classes - 1} is expected"
        )
    arrays = (base / f"{name}.npy" for name in ALL)
    array = next((file for file in arrays if file.is_file()), None)
    count = len(map_array(array)) if array else len(labels)
    if len(labels) * len(SEVERITIES) == count:
        return np.asarray(labels, dtype=np.int64)
    if len(labels) != count or count % len(SEVERITIES):
        raise DataError(
            f"{path} has {len(labels):,} labels, but {array} has {count:,} images; as many are "
            "expected, or a fifth"
        )
    blocks = labels.reshape(len(SEVERITIES), -1)
    if (blocks != blocks[0]).any():
        raise DataError(f"{path}: the labels of the five severities differ; they must repeat")
    return np.asarray(blocks[0], dtype=np.int64)


def check_array(path: Path, block: int) -> list[int]:
    """Five blocks of `block` uint8 images of 32×32, or a DataError. Returns the severities that
    hold images: `fretta corrupt --severity 5` leaves the other blocks black."""
    if not path.is_file():
        present = sorted(f.stem for f in path.parent.glob("*.npy") if f.stem != "labels")
        raise DataError(
            f"the corruption file {path} is missing; there are {listed(present) or 'none'}. "
            "`fretta corrupt` makes it from clean CIFAR; or choose others with domains="
        )
    array = map_array(path)
    expected = (block * len(SEVERITIES), 32, 32, 3)
    if array.dtype != np.uint8 or array.shape != expected:
        raise DataError(
            f"{path} is {array.dtype} {array.shape}; uint8 {expected} is expected: five severities "
            f"of {block:,} images"
        )
    probe = np.linspace(0, block - 1, 16).astype(np.int64)
    return [level for level in SEVERITIES if array[probe + (level - 1) * block].any()]


def open_cifar_c(
    name: str,
    root: str | Path | None = None,
    *,
    domains: str | Sequence[str] | None = None,
    severity: int | Sequence[int] = 5,
    size: int | None = None,
    verify: str = "warn",
) -> Dataset:
    """CIFAR-10-C or CIFAR-100-C: a domain per corruption and severity, in protocol order."""
    facts = CIFAR[name.removesuffix("c")]
    corruptions, levels = corruption_names(domains), severity_levels(severity)
    check_size(size)
    base = find_cifar_c(facts, root)
    labels = read_labels(base, len(facts.classes))
    block = len(labels)
    check_known(
        block == CIFAR_IMAGES["test"],
        verify,
        f"{facts.title}-C in {base} has {block:,} images per severity, not 10,000",
    )
    found = []
    for corruption in corruptions:
        path = base / f"{corruption}.npy"
        written = check_array(path, block)
        for level in levels:
            if level not in written:
                raise DataError(
                    f"severity {level} in {path} is black: it was never written. It holds "
                    f"{listed(map(str, written)) or 'none'}; `fretta corrupt` adds others"
                )
            title = domain_name(corruption, level, len(levels) > 1)
            rows = np.arange(block, dtype=np.int64) + (int(level) - 1) * block
            source = NpyRows(str(path))
            found.append(Domain(title, labels, source, rows, corruption, level, size=size))
    return Dataset(name, list(facts.classes), found, root=str(base))


def open_cifar_c_lt(
    name: str,
    root: str | Path | None = None,
    *,
    imbalance: float = 10.0,
    domains: str | Sequence[str] | None = None,
    severity: int | Sequence[int] = 5,
    size: int | None = None,
    verify: str = "warn",
) -> Dataset:
    """CIFAR-C with class c kept to int(n·IF^(−c/(C−1))) of its n images, IF = `imbalance`."""
    full = open_cifar_c(
        name.removesuffix("-lt"), root, domains=domains, severity=severity, size=size, verify=verify
    )
    kept = [d.subset(long_tail(d.labels, len(full.classes), imbalance)) for d in full.domains]
    return replace(full, name=name, domains=kept)
