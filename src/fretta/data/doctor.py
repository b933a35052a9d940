"""`doctor`: what of a data set is present, what is missing, and where it was looked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..corruptions import ALL, CORRUPTIONS
from ..errors import ConfigError, DataError, FrettaError
from ..models.preprocessing import Decoding
from .cifar import CIFAR, CIFAR_IMAGES, check_array, find_cifar, find_cifar_c, read_labels
from .cifar_pickle import read_batch, read_classes
from .datasets import check_name, dataset_options
from .digits import SPLITS as DIGIT_SPLITS
from .digits import split_rows
from .domain import Domain, Unreadable
from .domainsets import DOMAIN_SETS, find_domains
from .folders import Scan, common_classes, file_domain, listed, open_folder, scan, visible_files
from .imagenetc import CLASSES, find_corruptions, find_imagenet
from .images import EXTENSIONS, decode
from .shift import SEVERITIES

LEVELS = ("ok", "warn", "error")
Progress = Callable[[int, int], None]
_ORIGINAL = Decoding(size=None)


@dataclass(frozen=True)
class Finding:
    level: str  # ok, warn or error
    text: str


@dataclass
class Diagnosis:
    """Plain data; `lines()` renders it."""

    dataset: str
    findings: list[Finding] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """No error; warnings are allowed."""
        return all(finding.level != "error" for finding in self.findings)

    def lines(self) -> list[str]:
        counts = {level: sum(f.level == level for f in self.findings) for level in LEVELS}
        body = [f"{finding.level:5} {finding.text}" for finding in self.findings]
        body += [f"      {item.reason}" for item in self.unreadable]
        ending = f"{_count(counts['error'], 'error')}, {_count(counts['warn'], 'warning')}"
        if self.unreadable:
            ending += f", {_count(len(self.unreadable), 'unreadable image')}"
        return [*body, f"{self.dataset}: {ending}"]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}


def doctor(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    images: int | None = None,
    jobs: int = 2,
    progress: Progress | None = None,
    **options: Any,
) -> Diagnosis:
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
    checkup = _Checkup(Diagnosis(key), images, jobs, progress)
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
    return checkup.diagnosis


def _count(count: int, what: str = "image") -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


@dataclass
class _Checkup:
    """One method for each kind of data set; all add to the diagnosis."""

    diagnosis: Diagnosis
    images: int | None
    jobs: int
    progress: Progress | None

    def add(self, level: str, text: str) -> None:
        self.diagnosis.findings.append(Finding(level, text))

    def attempt(self, function: Callable[..., Any], *args: Any) -> Any:
        """The result, or None and an error in the diagnosis."""
        try:
            return function(*args)
        except DataError as error:
            self.add("error", str(error))
            return None

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
        good: list[Domain] = []
        scans: dict[str, Scan] = {}
        for name in facts.domains:
            if name not in present:
                self.add("warn", f"{name}: missing; no folder of that name in {base}")
                continue
            try:
                scans[name] = scan(present[name])
                classes = common_classes({name: scans[name]}, str(base), facts.classes)
                domain = file_domain(name, present[name], scans[name], classes, _ORIGINAL)
            except DataError as error:
                self.add("error", str(error))
                continue
            if len(classes) == facts.class_count:
                self.add("ok", f"{name}: the {len(classes)} classes are there")
            else:
                self.add("error", f"{name}: {len(classes)} classes, not {facts.class_count}")
            self.compare(name, len(domain), facts.counts[name])
            good.append(domain)
        if facts.classes is None and scans:
            self.attempt(common_classes, scans, str(base))
        self.files(good, [present[domain.name] for domain in good])

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

    def imagenet_c(self, root: Path | None) -> None:
        base = find_imagenet(root)
        present = find_corruptions(base)
        if present:
            self.add("ok", f"ImageNet-C found in {base}")
            places = {f"{c}/{s}": present[c] / str(s) for c in present for s in SEVERITIES}
            absent = [c for c in CORRUPTIONS if c not in present]
            if absent:
                self.add("warn", f"missing: {listed(absent)}; no such folder in {base}")
        else:
            self.add("ok", f"clean images found in {base}; corruptions are made on the fly")
            places = {"clean": base}
        good: list[Domain] = []
        scans: dict[str, Scan] = {}
        for name, place in places.items():
            if not place.is_dir():
                self.add("warn", f"{name}: missing; looked for {place}")
                continue
            try:
                scans[name] = scan(place)
                domain = file_domain(name, place, scans[name], list(scans[name]), _ORIGINAL)
            except DataError as error:
                self.add("error", str(error))
                continue
            good.append(domain)
            level = "ok" if len(scans[name]) == CLASSES else "warn"
            self.add(level, f"{name}: {_count(len(domain))}, {len(scans[name])} classes")
        if len(scans) > 1:
            self.attempt(common_classes, scans, str(base))
        self.files(good, [places[domain.name] for domain in good])

    def folder(self, root: Path | None, options: dict[str, Any]) -> None:
        dataset = open_folder("folder", root, **options)
        classes = dataset.classes
        self.add("ok", f"{dataset.root}: {len(classes)} classes: {listed(classes)}")
        for domain in dataset.domains:
            absent = sorted(set(range(len(classes))) - set(domain.labels.tolist()))
            text = f"{domain.name}: {_count(len(domain))}"
            if absent:
                text += f", none of {listed(classes[c] for c in absent)}"
            self.add("warn" if absent else "ok", text)
        self.files(dataset.domains, [Path(str(dataset.root))])

    def digits(self) -> None:
        counts = {split: len(split_rows(split)) for split in DIGIT_SPLITS}
        for what, count in {**counts, "total": sum(counts.values())}.items():
            self.add("ok", f"{what}: {_count(count)}")

    # ---- image files -----------------------------------------------------------------------------

    def files(self, domains: list[Domain], folders: list[Path]) -> None:
        """Per domain and in total, what can be read; what else lies in the folders."""
        if not domains:
            return
        unreadable = self.diagnosis.unreadable
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
                unreadable += failed
                tried = len(paths[domain.name])
                text = f"{tried - len(failed):,} of {len(domain):,} images decoded"
                if tried < len(domain):
                    text += f", {len(domain) - tried:,} not tried"
                if failed:
                    text += f", {len(failed):,} unreadable: {listed(f.path for f in failed)}"
                self.add("error" if failed else "ok", f"{domain.name}: {text}")
        images = sum(map(len, domains))
        parts = {"decoded": total - len(unreadable), "unreadable": len(unreadable)}
        parts["not tried"] = images - total
        text = ", ".join(f"{n:,} {what}" for what, n in parts.items() if n)
        where = f" in {len(domains)} domains" if len(domains) > 1 else ""
        self.add("ok", f"total: {_count(images)}{where}: {text}")
        self._others(domains, folders)

    def _chosen(self, domain: Domain) -> list[str]:
        paths = domain.paths or []
        if self.images is None or self.images >= len(paths):
            return paths
        spread = np.linspace(0, len(paths) - 1, self.images).astype(int)
        return [paths[row] for row in np.unique(spread)]

    def _others(self, domains: list[Domain], folders: list[Path]) -> None:
        """Files below the folders that are in no domain: of another kind, or beside the classes."""
        used = {path for domain in domains for path in domain.paths or []}
        found = sorted({path for folder in folders for path in visible_files(folder)} - used)
        images = [path for path in found if path.lower().endswith(EXTENSIONS)]
        others = [path for path in found if not path.lower().endswith(EXTENSIONS)]
        if images:
            outside = "left out, not in the folder of a class"
            self.add("warn", f"{_count(len(images))} {outside}: {listed(images)}")
        if others:
            kind = _count(len(others), "other file")
            self.add("warn", f"{kind} left out, not images: {listed(others)}")


def _failure(path: str) -> Unreadable | None:
    try:
        decode(path, _ORIGINAL)
    except DataError as error:
        return Unreadable(path, str(error))
    return None
