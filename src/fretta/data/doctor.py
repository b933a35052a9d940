"""`doctor`: what of a data set is present, what is missing, and where it was looked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..corruptions import ALL, CORRUPTIONS
from ..errors import ConfigError, DataError, FrettaError
from ..models.preprocessing import Decoding
from .cifar import CIFAR, CIFAR_IMAGES, check_array, find_cifar, find_cifar_c, read_labels
from .cifar_pickle import read_batch, read_classes
from .datasets import check_name, dataset_options
from .digits import SPLITS, split_rows
from .domain import Domain, Unreadable
from .domainsets import DOMAIN_SETS, find_domains
from .folders import Scan, common_classes, file_domain, listed, open_folder, scan, visible_files
from .imagenetc import CLASSES, find_corruptions, find_imagenet
from .images import EXTENSIONS, decode
from .shift import SEVERITIES

Progress = Callable[[int, int], None]
_ORIGINAL = Decoding(size=None)


@dataclass(frozen=True)
class Finding:
    level: str  # ok, warn or error
    text: str


@dataclass
class DoctorReport:
    """Plain data; `lines()` renders it."""

    dataset: str
    findings: list[Finding] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """No error; warnings are allowed."""
        return not self._number("error")

    def _number(self, level: str) -> int:
        return sum(finding.level == level for finding in self.findings)

    def lines(self) -> list[str]:
        body = [f"{finding.level:5} {finding.text}" for finding in self.findings]
        body += [f"      {item.reason}" for item in self.unreadable]
        ending = f"{_count(self._number('error'), 'error')}, "
        ending += _count(self._number("warn"), "warning")
        if self.unreadable:
            ending += f", {_count(len(self.unreadable), 'unreadable image')}"
        return [*body, f"{self.dataset}: {ending}"]


def doctor(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    images: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> DoctorReport:
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
    checkup = _Checkup(DoctorReport(key), images, progress)
    try:
        if key in DOMAIN_SETS:
            checkup.domain_set(key, place)
        elif key in CIFAR:
            checkup.cifar(key, place)
        elif key.startswith("cifar"):
            checkup.cifar_c(key.removesuffix("-lt").removesuffix("c"), place)
        elif key == "imagenetc":
            checkup.imagenet_c(place)
        elif key == "folder":
            checkup.folder(place, options)
        else:
            checkup.digits()
    except FrettaError as error:  # nothing further can be checked
        checkup.add("error", str(error))
    return checkup.report


def _count(count: int, what: str = "image") -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


@dataclass
class _Checkup:
    """One method for each kind of data set; all add to the report."""

    report: DoctorReport
    images: int | None
    progress: Progress | None

    def add(self, level: str, text: str) -> None:
        self.report.findings.append(Finding(level, text))

    def attempt(self, function: Callable[..., Any], *args: Any) -> Any:
        """The result, or None and an error in the report."""
        try:
            return function(*args)
        except DataError as error:
            return self.add("error", str(error))

    def compare(self, what: str, seen: int, known: int) -> None:
        if seen == known:
            self.add("ok", f"{what}: {_count(seen)}, as known")
        else:
            gap = f"{known - seen:,} fewer" if seen < known else f"{seen - known:,} more"
            self.add("warn", f"{what}: {_count(seen)} where {known:,} are known, {gap}")

    def domain_set(self, key: str, root: Path | None) -> None:
        facts = DOMAIN_SETS[key]
        base, present = find_domains(facts, root)
        self.add("ok", f"{facts.title} found in {base}")
        places = {name: present.get(name) for name in facts.domains}
        for domain, classes in self.domains(places, base, facts.classes):
            fits = len(classes) == facts.class_count
            text = f"{len(classes)} classes" + ("" if fits else f", not {facts.class_count}")
            self.add("ok" if fits else "error", f"{domain.name}: {text}")
            self.compare(domain.name, len(domain), facts.counts[domain.name])

    def imagenet_c(self, root: Path | None) -> None:
        base = find_imagenet(root)
        present = find_corruptions(base)
        places: dict[str, Path | None] = {"clean": base}
        if present:
            self.add("ok", f"ImageNet-C found in {base}")
            places = {f"{c}/{s}": present[c] / str(s) for c in present for s in SEVERITIES}
            absent = [c for c in CORRUPTIONS if c not in present]
            if absent:
                self.add("warn", f"missing: {listed(absent)}; no such folder in {base}")
        else:
            self.add("ok", f"clean images found in {base}; corruptions are made on the fly")
        for domain, classes in self.domains(places, base, None):
            level = "ok" if len(classes) == CLASSES else "warn"
            self.add(level, f"{domain.name}: {_count(len(domain))}, {len(classes)} classes")

    def domains(
        self, places: dict[str, Path | None], base: Path, classes: Sequence[str] | None
    ) -> Iterator[tuple[Domain, list[str]]]:
        """The domains that can be listed and their classes; then a look at all of their files."""
        good: list[Domain] = []
        folders: list[Path] = []
        scans: dict[str, Scan] = {}
        for name, place in places.items():
            if place is None or not place.is_dir():
                where = f"folder of that name in {base}" if place is None else place
                self.add("warn", f"{name}: missing; no {where}")
                continue
            try:
                scans[name] = scan(place)
                own = common_classes({name: scans[name]}, str(base), classes)
                good.append(file_domain(name, place, scans[name], own, _ORIGINAL))
            except DataError as error:
                self.add("error", str(error))
            else:
                folders.append(place)
                yield good[-1], own
        if classes is None and scans:
            self.attempt(common_classes, scans, str(base))
        self.files(good, folders)

    def cifar(self, key: str, root: Path | None) -> None:
        facts = CIFAR[key]
        base = find_cifar(facts, root)
        self.add("ok", f"{facts.title} found in {base}")
        classes = self.attempt(read_classes, base / facts.meta)
        if classes is not None:
            level = "ok" if tuple(classes) == facts.classes else "error"
            self.add(level, f"{facts.meta}: {len(classes)} classes: {listed(classes)}")
        seen = {"train": 0, "test": 0}
        for split, batches in (("train", facts.train), ("test", facts.test)):
            for batch in batches:
                if not (base / batch).is_file():
                    level = "warn" if split == "train" else "error"
                    self.add(level, f"{batch}: missing; looked for {base / batch}")
                    continue
                content = self.attempt(read_batch, base / batch)
                if content is not None:
                    seen[split] += len(content[1])
                    self.compare(batch, len(content[1]), CIFAR_IMAGES[split] // len(batches))
        parts = ", ".join(f"{split} {n:,} of {CIFAR_IMAGES[split]:,}" for split, n in seen.items())
        self.add("ok", f"total: {_count(sum(seen.values()))}: {parts}")

    def cifar_c(self, clean: str, root: Path | None) -> None:
        facts = CIFAR[clean]
        base = find_cifar_c(facts, root)
        self.add("ok", f"{facts.title}-C found in {base}")
        block = len(read_labels(base, len(facts.classes)))
        self.compare("labels.npy, per severity", block, CIFAR_IMAGES["test"])
        total = 0
        for corruption in ALL:
            path = base / f"{corruption}.npy"
            if corruption not in CORRUPTIONS and not path.is_file():
                self.add("ok", f"{corruption}: not there (one of the four extra ones)")
                continue
            written = self.attempt(check_array, path, block)
            if written is not None:
                total += block * len(written)
                level = "ok" if len(written) == len(SEVERITIES) else "warn"
                severities = listed(map(str, written)) or "none"
                self.add(level, f"{corruption}: severities {severities}, {block:,} images each")
        self.add("ok", f"total: {_count(total)}")

    def folder(self, root: Path | None, options: dict[str, Any]) -> None:
        dataset = open_folder("folder", root, **options)
        classes = dataset.classes
        self.add("ok", f"{dataset.root}: {len(classes)} classes: {listed(classes)}")
        for domain in dataset.domains:
            absent = sorted(set(range(len(classes))) - set(domain.labels.tolist()))
            lacking = f", none of {listed(classes[c] for c in absent)}" if absent else ""
            level = "warn" if absent else "ok"
            self.add(level, f"{domain.name}: {_count(len(domain))}{lacking}")
        self.files(dataset.domains, [Path(str(dataset.root))])

    def digits(self) -> None:
        counts = {split: len(split_rows(split)) for split in SPLITS}
        for what, count in {**counts, "total": sum(counts.values())}.items():
            self.add("ok", f"{what}: {_count(count)}")

    def files(self, domains: list[Domain], folders: list[Path]) -> None:
        """Per domain and in total, what can be read; what else lies in the folders."""
        if not domains:
            return
        unreadable = self.report.unreadable
        chosen = [self._chosen(domain.paths or []) for domain in domains]
        total, done = sum(map(len, chosen)), 0
        with ThreadPoolExecutor(2) as pool:  # Pillow decodes outside the interpreter lock
            for domain, paths in zip(domains, chosen, strict=True):
                failed = []
                for failure in pool.map(_failure, paths):
                    done += 1
                    failed += [failure] if failure else []
                    if self.progress:
                        self.progress(done, total)
                unreadable += failed
                text = f"{len(paths) - len(failed):,} of {len(domain):,} images decoded"
                if len(paths) < len(domain):
                    text += f", {len(domain) - len(paths):,} not tried"
                if failed:
                    text += f", {len(failed):,} unreadable: {listed(f.path for f in failed)}"
                self.add("error" if failed else "ok", f"{domain.name}: {text}")
        images = sum(map(len, domains))
        parts = {"decoded": total - len(unreadable), "unreadable": len(unreadable)}
        parts["not tried"] = images - total
        text = ", ".join(f"{n:,} {what}" for what, n in parts.items() if n)
        where = f" in {len(domains)} domains" if len(domains) > 1 else ""
        self.add("ok", f"total: {_count(images)}{where}: {text}")
        # Files that are in no domain: of another kind, or beside the classes.
        used = {path for domain in domains for path in domain.paths or []}
        found = sorted({path for folder in folders for path in visible_files(folder)} - used)
        stray = [path for path in found if path.lower().endswith(EXTENSIONS)]
        other = [path for path in found if not path.lower().endswith(EXTENSIONS)]
        for paths, what, why in (
            (stray, "image", "not in the folder of a class"),
            (other, "other file", "not images"),
        ):
            if paths:
                self.add("warn", f"{_count(len(paths), what)} left out, {why}: {listed(paths)}")

    def _chosen(self, paths: list[str]) -> list[str]:
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
