"""The streams of benchmarks/streams.py: which model, which images, in which order.

One set of sizes for every method. Images that were corrupted or decoded once are kept in a cache
folder, since every method and seed shows the same ones.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fretta._util import atomic
from fretta.data import Stream
from fretta.data.domain import Domain, ImageFiles
from fretta.experiment.case import Case, open_case

Options = Mapping[str, Any]
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CLASSES = {"cat": 3, "ship": 8, "automobile": 1}  # the frequent one with seeds 0, 1 and 2
NOISES = ["gaussian_noise", "motion_blur", "fog", "jpeg_compression"]
CORRUPTED = {"name": "cifar10", "corruption": "all", "severity": 5}

# model, and options of open_case: as in the suites cifar10c-shared, pacs-shared, imagenet-shared
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "digits": ("digits", {"source": {"name": "digits", "split": "train"}}),
    "cifar": (
        "cifar:resnet20",
        {
            "weights": "cifar10_resnet20.safetensors",
            "num_classes": 10,
            "size": 32,
            "mean": MEAN,
            "std": STD,
            "source": {"name": "cifar10", "split": "train", "verify": "off"},
        },
    ),
    "imagenet": (
        "timm:tf_efficientnet_lite0",
        {
            "weights": "efficientnet-lite0",
            "num_classes": 1000,
            "size": 112,
            "mean": [0.5] * 3,
            "std": [0.5] * 3,
            "source": {
                "name": "folder",
                "path": "imagenet-sample",
                "layout": "classes",
                "size": 112,
                "fit": "crop",
                "exif": False,
            },
        },
    ),
    "art_painting": (
        "timm:tf_efficientnet_lite0",
        {
            "weights": "pacs_art_painting_tf_efficientnet_lite0.safetensors",
            "num_classes": 7,
            "size": 160,
            "mean": MEAN,
            "std": STD,
        },
    ),
    "cartoon": ("pacs-cartoon-lite0.safetensors", {}),
    "photo": ("pacs-photo-lite0.safetensors", {}),
}
PACS = ("art_painting", "cartoon", "photo")
for _target in PACS:
    _others = [d for d in PACS if d != _target]
    MODELS[_target][1]["source"] = {"name": "pacs", "domains": _others, "size": 160}


@dataclass(frozen=True)
class Plan:
    """A stream of the benchmark."""

    name: str
    title: str  # over its column
    model: str  # of MODELS
    data: Options
    batch_size: int
    order: str = "continual"
    options: Options = field(default_factory=dict)  # of make_stream
    by_seed: Sequence[Options] = ()  # those that differ from seed to seed
    seeds: Sequence[int] = (0, 1, 2)

    def order_options(self, seed: int) -> dict[str, Any]:
        more = self.by_seed[seed % len(self.by_seed)] if self.by_seed else {}
        return {**self.options, **more}


def _cifar(name: str, title: str, batch_size: int, limit: int, **more: Any) -> Plan:
    options = {"limit": limit, **more.pop("options", {})}
    data = more.pop("data", CORRUPTED)
    return Plan(name, title, "cifar", data, batch_size, options=options, **more)


def _frequent(shift: str, share: float) -> Plan:
    clean = shift == "clean"
    data = {"name": "cifar10", **({} if clean else {"corruption": shift, "severity": 5})}
    short = shift.removeprefix("gaussian_")
    return _cifar(
        f"{short}-{100 * share:.0f}",
        f"{short}, one class {100 * share:.0f} %",
        64,
        512,
        data=data,
        order="continual+dominant",
        options={"share": share},
        by_seed=[{"dominant": number} for number in CLASSES.values()],
    )


PLANS: dict[str, Plan] = {
    plan.name: plan
    for plan in (
        Plan("digits-64", "digits-C, 64", "digits", {"name": "digits"}, 64),
        Plan("digits-8", "digits-C, 8", "digits", {"name": "digits"}, 8),
        # 128 images of each corruption, a reset before each: a folder to be sorted once
        Plan(
            "digits-short",
            "digits-C, 128 images, 64",
            "digits",
            {"name": "digits"},
            64,
            order="independent",
            options={"limit": 128},
        ),
        _cifar("cifar-short", "CIFAR-10-C, 128 images, 64", 64, 128, order="independent"),
        _cifar("clean", "CIFAR-10 clean, 128", 128, 1024, data={"name": "cifar10"}),
        _cifar("cifar-128", "CIFAR-10-C, 128", 128, 256),
        _cifar("cifar-8", "CIFAR-10-C, 8", 8, 256),
        _cifar("cifar-1", "CIFAR-10-C, 1", 1, 48),
        _cifar(
            "cifar-lt",
            "CIFAR-10-C-LT 100, 128",
            128,
            512,
            order="continual+long-tailed",
            options={"imbalance": 100},
        ),
        *(
            _frequent(shift, share)
            for shift in ("clean", "gaussian_noise", "fog")
            for share in (0.5, 0.7, 0.8)
        ),
        *(
            _cifar(f"{o}-{b}", f"{o}, {b}", b, 128, order=f"continual+{o}")
            for o in ("correlated", "sorted")
            for b in (16, 4)
        ),
        *(
            Plan(
                f"pacs-{domain}",
                f"PACS {domain}, 64",
                domain,
                {"name": "pacs", "domains": [domain], "size": 160},
                64,
                options={"limit": 192},
            )
            for domain in PACS
        ),
        Plan(
            "imagenet-clean",
            "ImageNet clean, 64",
            "imagenet",
            MODELS["imagenet"][1]["source"],
            64,
            options={"limit": 256},
        ),
        Plan(
            "imagenet-c",
            "ImageNet-C, 64",
            "imagenet",
            {"name": "imagenetc", "domains": NOISES, "severity": 4, "size": 112, "verify": "off"},
            64,
            options={"limit": 128},
        ),
        Plan("cifar-long", "CIFAR-10-C, all images, 128", "cifar", CORRUPTED, 128, seeds=(0,)),
    )
}


@cache
def open_plan(name: str) -> Case:
    """The case of a plan."""
    plan = PLANS[name]
    model, options = MODELS[plan.model]
    return open_case(model, plan.data, **options, device="cpu", lazy=True)


# ---- images, made once --------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """Source: finished pixels of some rows of another source, in a file."""

    file: str
    known: NDArray[np.int64]  # rows of the other source, in ascending order

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        pixels = np.load(self.file, mmap_mode="r")
        return np.asarray(pixels[np.searchsorted(self.known, rows)])


def kept_stream(stream: Stream, folder: Path) -> Stream:
    """The same stream, whose images come from files in the folder; they are made if missing."""
    domains = []
    for number, domain in enumerate(stream.dataset.domains):
        shown = np.unique(stream.schedule.index[stream.schedule.domain == number])
        domains.append(_kept(domain, shown, stream, folder) if len(shown) else domain)
    return replace(stream, dataset=replace(stream.dataset, domains=domains))


def _kept(domain: Domain, shown: NDArray[np.int64], stream: Stream, folder: Path) -> Domain:
    part = domain.subset(shown[np.argsort(domain.rows[shown])])
    facts = [replace(stream.dataset, domains=[part]).fingerprint(), domain.size, domain.source]
    facts += [domain.source.decoding] if isinstance(domain.source, ImageFiles) else []
    file = folder / f"{hashlib.sha256(repr(facts).encode()).hexdigest()[:20]}.npy"
    if not file.is_file():
        pixels = np.concatenate(
            [part.read(np.arange(i, min(i + 500, len(part)))) for i in range(0, len(part), 500)]
        )
        with atomic(file) as draft, draft.open("wb") as target:
            np.save(target, pixels)
    return replace(domain, source=Kept(os.fspath(file), part.rows), made=False, size=None)
