"""ImageNet-C: `<corruption>/<severity>/<wnid>/*.JPEG`, or a clean folder corrupted on the fly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..corruptions import ALL
from ..errors import DataError
from ..models.preprocessing import CROP_RATIO, Decoding
from .domain import Dataset
from .folders import check_known, file_domains, guess_layout, has_images, listed, locate, subfolders
from .shift import corruption_names, domain_name, severity_levels, with_corruptions

FOLDERS = ("ImageNet-C", "imagenet-c", "imagenet-sample", "imagenet", "val")
# ImageNet-C is distributed in archives; some people keep one folder per archive.
GROUPS = ("noise", "blur", "weather", "digital", "extra")
CLASSES = 1000


def find_corruptions(base: Path) -> dict[str, Path]:
    """Corruption -> folder, directly in `base` or one level down in noise, blur, ..."""
    names = subfolders(base)
    found = {name: base / name for name in names if name in ALL}
    for group in (name for name in names if name in GROUPS):
        for name in subfolders(base / group):
            if name in ALL:
                found.setdefault(name, base / group / name)
    return found


def find_imagenet(root: str | Path | None) -> Path:
    """A folder with corruption folders or with class folders of images."""

    def fits(folder: Path) -> bool:
        some = subfolders(folder)[:3]
        return bool(find_corruptions(folder)) or any(has_images(folder / name) for name in some)

    return locate(
        root,
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
    corruptions, levels = corruption_names(domains), severity_levels(severity)
    decoding = Decoding(size, fit, interpolation, exif, crop_ratio)
    base = find_imagenet(root)
    present = find_corruptions(base)
    if present:
        places = {
            domain_name(corruption, level, len(levels) > 1): (corruption, level)
            for corruption in corruptions
            for level in levels
        }
        folders = {}
        for domain, (corruption, level) in places.items():
            folders[domain] = present.get(corruption, base / corruption) / str(level)
            if not folders[domain].is_dir():
                raise DataError(
                    f"ImageNet-C {corruption} at severity {level} is missing: no folder "
                    f"{folders[domain]}; {base} has {listed(present)}"
                )
        found, classes = file_domains(folders, base, decoding)
        shown = zip(found, places.values(), strict=True)
        found = [replace(domain, corruption=c, severity=level) for domain, (c, level) in shown]
        dataset = Dataset(name, classes, found, root=str(base))
    else:
        if guess_layout(base) != "classes":
            raise DataError(f"{base} holds neither corruption folders nor class folders of images")
        found, classes = file_domains({"clean": base}, base, decoding)
        dataset = Dataset(name, classes, found, root=str(base))
        dataset = with_corruptions(dataset, corruptions, levels, corruption_seed)
    check_known(
        len(dataset.classes) == CLASSES,
        verify,
        f"ImageNet has {CLASSES} classes, but {base} has {len(dataset.classes)}; labels are "
        "positions in the sorted list of folders and will not match an ImageNet model",
    )
    return dataset
