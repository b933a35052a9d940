"""ImageNet-C: `<corruption>/<severity>/<wnid>/*.JPEG`, or a clean folder corrupted on the fly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..corruptions import CORRUPTIONS
from ..corruptions import EXTRA as EXTRA_CORRUPTIONS
from ..errors import DataError
from ..models.preprocessing import CROP_RATIO, Decoding
from .arrays import check_corruptions, severities, shifted_name
from .domain import Dataset
from .domainsets import guess_layout
from .folders import (
    agree,
    complain,
    data_root,
    file_domain,
    has_images,
    listed,
    locate,
    scan,
    subfolders,
)
from .known import IMAGENET_C_GROUPS
from .shift import with_corruptions

FOLDERS = ("ImageNet-C", "imagenet-c", "imagenet-sample", "imagenet", "val")
CLASSES = 1000


def find_corruptions(base: Path) -> dict[str, Path]:
    """Corruption -> folder, directly in `base` or one level down in noise, blur, ..."""
    known = CORRUPTIONS + EXTRA_CORRUPTIONS
    names = subfolders(base)
    found = {name: base / name for name in names if name in known}
    for group in (name for name in names if name in IMAGENET_C_GROUPS):
        for name in subfolders(base / group):
            if name in known:
                found.setdefault(name, base / group / name)
    return found


def find_imagenet(root: str | Path | None) -> Path:
    """A folder with corruption folders or with class folders of images."""

    def fits(folder: Path) -> bool:
        if find_corruptions(folder):
            return True
        return any(has_images(folder / name) for name in subfolders(folder)[:3])

    return locate(
        data_root(root, "ImageNet-C"),
        "ImageNet-C",
        FOLDERS,
        fits,
        "a folder with <corruption>/<severity>/<wnid>/*.JPEG, or a clean one with <wnid>/*.JPEG,",
    )


def open_imagenet_c(
    name: str,
    root: str | Path | None = None,
    *,
    domains: str | Sequence[str] | None = None,
    severity: int | Sequence[int] = 5,
    size: int | None = 224,
    fit: str = "crop",
    interpolation: str = "bilinear",
    exif: bool = False,
    crop_ratio: float = CROP_RATIO,
    corruption_seed: int = 0,
    verify: str = "warn",
) -> Dataset:
    """A domain per corruption and severity; the corruptions are made here if only clean images
    are found. Sorted class folders give the labels."""
    chosen, levels = check_corruptions(domains), severities(severity)
    decoding = Decoding(size, fit, interpolation, exif, crop_ratio)
    base = find_imagenet(root)
    there = find_corruptions(base)
    if there:
        places = {}
        for corruption in chosen:
            for level in levels:
                place = there.get(corruption, base / corruption) / str(level)
                if not place.is_dir():
                    raise DataError(
                        f"ImageNet-C {corruption} at severity {level} is missing: no folder "
                        f"{place}; {base} has {listed(there)}"
                    )
                places[shifted_name(corruption, level, len(levels) > 1)] = (
                    corruption,
                    level,
                    place,
                )
        scans = {domain: scan(place) for domain, (_, _, place) in places.items()}
        classes = agree(scans, str(base))
        found = [
            file_domain(domain, place, scans[domain], classes, decoding, corruption, level)
            for domain, (corruption, level, place) in places.items()
        ]
        opened = Dataset(name, classes, found, root=str(base))
    else:
        if guess_layout(base) != "classes":
            raise DataError(f"{base} holds neither corruption folders nor class folders of images")
        images = scan(base)
        clean = file_domain("clean", base, images, list(images), decoding)
        opened = with_corruptions(
            Dataset(name, list(images), [clean], root=str(base)), chosen, levels, corruption_seed
        )
    if len(opened.classes) != CLASSES:
        complain(
            verify,
            f"ImageNet has {CLASSES} classes, but {base} has {len(opened.classes)}; labels are "
            "positions in the sorted list of folders and will not match an ImageNet model",
        )
    return opened
