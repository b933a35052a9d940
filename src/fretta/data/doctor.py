"""`doctor`: what of a data set is there, what is missing, and where it was looked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ..corruptions import CORRUPTIONS
from ..corruptions import EXTRA as EXTRA_CORRUPTIONS
from ..errors import ConfigError, DataError, FrettaError
from ..models.preprocessing import Decoding
from .arrays import check_array, find_cifar, find_cifar_c, read_labels
from .cifar import read_batch, read_classes
from .datasets import check_name, dataset_options
from .digits import SPLITS as DIGIT_SPLITS
from .digits import split_rows
from .domain import Domain, Unreadable
from .domainsets import find_domains, open_folder
from .folders import agree, file_domain, listed, scan, visible_files
from .imagenetc import CLASSES, find_corruptions, find_imagenet
from .images import EXTENSIONS, decode
from .known import CIFAR, CIFAR_IMAGES, DOMAIN_SETS, SEVERITIES

LEVELS = ("ok", "warn", "error")
Progress = Callable[[int, int], None]
_ORIGINAL = Decoding(size=None)


@dataclass(frozen=True)
class Finding:
    level: str  # ok, warn or error
    text: str


@dataclass(frozen=True)
class Report:
    """Plain data; `lines()` renders it."""

    dataset: str
    findings: tuple[Finding, ...]
    unreadable: tuple[Unreadable, ...] = ()

    @property
    def ok(self) -> bool:
        """No error; warnings are allowed."""
        return all(finding.level != "error" for finding in self.findings)

    def lines(self) -> list[str]:
        counts = {level: sum(f.level == level for f in self.findings) for level in LEVELS}
        body = [f"{finding.level:5} {finding.text}" for finding in self.findings]
        body += [f"      {item.reason}" for item in self.unreadable]
        ending = f"{_several(counts['error'], 'error')}, {_several(counts['warn'], 'warning')}"
        if self.unreadable:
            ending += f", {_several(len(self.unreadable), 'unreadable image')}"
        return [*body, f"{self.dataset}: {ending}"]

    def to_json(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset,
            "ok": self.ok,
            "findings": [{"level": f.level, "text": f.text} for f in self.findings],
            "unreadable": [{"path": u.path, "reason": u.reason} for u in self.unreadable],
        }


def doctor(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    images: int | None = None,
    jobs: int = 2,
    progress: Progress | None = None,
    **options: Any,
) -> Report:
    """Check a data set. Damage is reported, not raised.

    images: decode at most this many per domain, evenly spread (None: every one; 0: none).
    progress: called with images done and images to do. `folder` takes the options that
    open_dataset takes for it.
    """
    key = check_name(name)
    unknown = [option for option in options if option not in dataset_options(key)]
    if unknown or (options and key != "folder"):
        raise ConfigError(f"doctor({key!r}) takes no option {listed(unknown or options)}")
    place = None if root is None else Path(root)
    check = _Check(images, jobs, progress)
    findings: list[Finding] = []
    try:
        for finding in _dispatch(key, place, check, options):
            findings.append(finding)
    except FrettaError as error:  # nothing further can be checked
        findings.append(Finding("error", str(error)))
    return Report(key, tuple(findings), tuple(check.unreadable))


def _dispatch(
    key: str, root: Path | None, check: _Check, options: dict[str, Any]
) -> Iterator[Finding]:
    if key in DOMAIN_SETS:
        return _domain_set(key, root, check)
    if key in CIFAR:
        return _cifar(key, root)
    if key.startswith("cifar"):
        return _cifar_c(key.removesuffix("-lt").removesuffix("c"), root)
    if key == "imagenetc":
        return _imagenet_c(root, check)
    if key == "folder":
        return _folder(root, check, options)
    return _digits()


class _Check:
    """Decodes images and remembers which failed."""

    def __init__(self, images: int | None, jobs: int, progress: Progress | None) -> None:
        self.images, self.jobs, self.progress = images, jobs, progress
        self.unreadable: list[Unreadable] = []

    def files(self, domains: list[Domain], folders: list[Path]) -> Iterator[Finding]:
        """Per domain and in total, what can be read; what else lies in the folders."""
        paths = {domain.name: self._chosen(domain) for domain in domains}
        total, done = sum(map(len, paths.values())), 0
        with ThreadPoolExecutor(self.jobs) as pool:  # Pillow decodes outside the interpreter lock
            for domain in domains:
                failed = []
                for failure in pool.map(_failure, paths[domain.name]):
                    done += 1
                    failed += [failure] if failure else []
                    if self.progress:
                        self.progress(done, total)
                self.unreadable += failed
                tried, readable = len(paths[domain.name]), len(paths[domain.name]) - len(failed)
                told = f"{readable:,} of {len(domain):,} images decoded"
                if tried < len(domain):
                    told += f", {len(domain) - tried:,} not tried"
                if failed:
                    told += f", {len(failed):,} unreadable: {listed(f.path for f in failed)}"
                yield Finding("error" if failed else "ok", f"{domain.name}: {told}")
        if domains:
            parts = {
                "decoded": total - len(self.unreadable),
                "unreadable": len(self.unreadable),
                "not tried": sum(map(len, domains)) - total,
            }
            told = ", ".join(f"{n:,} {what}" for what, n in parts.items() if n)
            where = f" in {len(domains)} domains" if len(domains) > 1 else ""
            yield Finding("ok", f"total: {_images(sum(map(len, domains)))}{where}: {told}")
            yield from _left_out(domains, folders)

    def _chosen(self, domain: Domain) -> list[str]:
        paths = domain.paths or []
        if self.images is None or self.images >= len(paths):
            return paths
        spread = np.linspace(0, len(paths) - 1, self.images).astype(int)
        return [paths[row] for row in np.unique(spread)]


def _failure(path: str) -> Unreadable | None:
    try:
        decode(path, _ORIGINAL)
    except DataError as error:
        return Unreadable(path, str(error))
    return None


def _several(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _images(count: int) -> str:
    return _several(count, "image")


def _count(what: str, seen: int, known: int) -> Finding:
    if seen == known:
        return Finding("ok", f"{what}: {_images(seen)}, as known")
    gap = f"{known - seen:,} fewer" if seen < known else f"{seen - known:,} more"
    return Finding("warn", f"{what}: {_images(seen)} where {known:,} are known, {gap}")


def _left_out(domains: list[Domain], folders: list[Path]) -> Iterator[Finding]:
    """Files below the folders that are in no domain: of another kind, or beside the classes."""
    used = {path for domain in domains for path in domain.paths or []}
    found = sorted({path for folder in folders for path in visible_files(folder)} - used)
    images = [path for path in found if path.lower().endswith(EXTENSIONS)]
    others = [path for path in found if not path.lower().endswith(EXTENSIONS)]
    if images:
        text = f"{_images(len(images))} left out, not in the folder of a class: {listed(images)}"
        yield Finding("warn", text)
    if others:
        text = f"{_several(len(others), 'other file')} left out, not images: {listed(others)}"
        yield Finding("warn", text)


def _domain_set(key: str, root: Path | None, check: _Check) -> Iterator[Finding]:
    facts = DOMAIN_SETS[key]
    base, there = find_domains(facts, root)
    yield Finding("ok", f"{facts.title} found in {base}")
    good: list[Domain] = []
    scans: dict[str, dict[str, list[str]]] = {}
    for name in facts.domains:
        if name not in there:
            yield Finding("warn", f"{name}: missing; no folder of that name in {base}")
            continue
        try:
            scans[name] = scan(there[name])
            classes = agree({name: scans[name]}, str(base), facts.classes)
            domain = file_domain(name, there[name], scans[name], classes, _ORIGINAL)
        except DataError as error:
            yield Finding("error", str(error))
            continue
        if len(classes) == facts.class_count:
            yield Finding("ok", f"{name}: the {len(classes)} classes are there")
        else:
            yield Finding("error", f"{name}: {len(classes)} classes, not {facts.class_count}")
        yield _count(name, len(domain), facts.counts[name])
        good.append(domain)
    if facts.classes is None and scans:
        try:
            agree(scans, str(base))
        except DataError as error:
            yield Finding("error", str(error))
    yield from check.files(good, [there[domain.name] for domain in good])


def _cifar(key: str, root: Path | None) -> Iterator[Finding]:
    facts = CIFAR[key]
    base = find_cifar(facts, root)
    yield Finding("ok", f"{facts.title} found in {base}")
    try:
        classes = read_classes(base / facts.meta)
        level = "ok" if tuple(classes) == facts.classes else "error"
        yield Finding(level, f"{facts.meta}: {len(classes)} classes: {listed(classes)}")
    except DataError as error:
        yield Finding("error", str(error))
    seen = {"train": 0, "test": 0}
    for split, batches in (("train", facts.train), ("test", facts.test)):
        for batch in batches:
            if not (base / batch).is_file():
                level = "warn" if split == "train" else "error"
                yield Finding(level, f"{batch}: missing; looked for {base / batch}")
                continue
            try:
                labels = read_batch(base / batch)[1]
            except DataError as error:
                yield Finding("error", str(error))
                continue
            seen[split] += len(labels)
            yield _count(batch, len(labels), CIFAR_IMAGES[split] // len(batches))
    told = ", ".join(f"{split} {n:,} of {CIFAR_IMAGES[split]:,}" for split, n in seen.items())
    yield Finding("ok", f"total: {_images(sum(seen.values()))}: {told}")


def _cifar_c(clean: str, root: Path | None) -> Iterator[Finding]:
    facts = CIFAR[clean]
    base = find_cifar_c(facts, root)
    yield Finding("ok", f"{facts.title}-C found in {base}")
    block = len(read_labels(base, len(facts.classes)))
    yield _count("labels.npy, per severity", block, CIFAR_IMAGES["test"])
    total = 0
    for corruption in chain(CORRUPTIONS, EXTRA_CORRUPTIONS):
        path = base / f"{corruption}.npy"
        if corruption in EXTRA_CORRUPTIONS and not path.is_file():
            yield Finding("ok", f"{corruption}: not there (one of the four extra ones)")
            continue
        try:
            held = check_array(path, block)
            total += block * len(held)
            level = "ok" if len(held) == len(SEVERITIES) else "warn"
            told = listed(map(str, held)) or "none"
            yield Finding(level, f"{corruption}: severities {told}, {block:,} images each")
        except DataError as error:
            yield Finding("error", str(error))
    yield Finding("ok", f"total: {_images(total)}")


def _imagenet_c(root: Path | None, check: _Check) -> Iterator[Finding]:
    base = find_imagenet(root)
    there = find_corruptions(base)
    if there:
        yield Finding("ok", f"ImageNet-C found in {base}")
        places = {f"{c}/{s}": there[c] / str(s) for c in there for s in SEVERITIES}
        absent = [c for c in CORRUPTIONS if c not in there]
        if absent:
            yield Finding("warn", f"missing: {listed(absent)}; no such folder in {base}")
    else:
        yield Finding("ok", f"clean images found in {base}; corruptions are made on the fly")
        places = {"clean": base}
    good: list[Domain] = []
    scans: dict[str, dict[str, list[str]]] = {}
    for name, place in places.items():
        if not place.is_dir():
            yield Finding("warn", f"{name}: missing; looked for {place}")
            continue
        try:
            scans[name] = scan(place)
            good.append(file_domain(name, place, scans[name], list(scans[name]), _ORIGINAL))
        except DataError as error:
            yield Finding("error", str(error))
            continue
        level = "ok" if len(scans[name]) == CLASSES else "warn"
        yield Finding(level, f"{name}: {_images(len(good[-1]))}, {len(scans[name])} classes")
    if len(scans) > 1:
        try:
            agree(scans, str(base))
        except DataError as error:
            yield Finding("error", str(error))
    yield from check.files(good, [places[domain.name] for domain in good])


def _folder(root: Path | None, check: _Check, options: dict[str, Any]) -> Iterator[Finding]:
    opened = open_folder("folder", root, **options)
    yield Finding("ok", f"{opened.root}: {len(opened.classes)} classes: {listed(opened.classes)}")
    for domain in opened.domains:
        absent = sorted(set(range(len(opened.classes))) - set(domain.labels.tolist()))
        text = f"{domain.name}: {_images(len(domain))}"
        if absent:
            text += f", none of {listed(opened.classes[c] for c in absent)}"
        yield Finding("warn" if absent else "ok", text)
    yield from check.files(opened.domains, [Path(str(opened.root))])


def _digits() -> Iterator[Finding]:
    for split in DIGIT_SPLITS:
        yield Finding("ok", f"{split}: {_images(len(split_rows(split)))}")
    total = sum(len(split_rows(split)) for split in DIGIT_SPLITS)
    yield Finding("ok", f"total: {_images(total)}")
