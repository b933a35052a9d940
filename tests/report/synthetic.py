"""Records as runs would leave them, made of seeded numbers: quick, and the same every time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fretta.experiment.records import Record, Run
from fretta.experiment.store import Store
from fretta.report.palette import CORRUPTIONS

METHODS = ("source", "bn", "tent", "eata", "sar", "tsd", "tipi", "tea", "s-fret", "g-fret")
HOSTILE = "<script>alert(1)</script>"
PASSES = {"source": "1F", "bn": "1F", "tipi": "4F+2B", "tea": "23F+21B", "sar": "2F+2B"}


def record(
    label: str = "tent",
    seed: int = 0,
    *,
    suite: str = "digits",
    case: str = "digits",
    accuracy: dict[str, float] | None = None,
    data: dict[str, Any] | None = None,
    method: str | None = None,
    hyperparameters: dict[str, Any] | None = None,
    order_options: dict[str, Any] | None = None,
    error: str = "",
    dirty: bool = False,
    tuning: str = "",
    seconds: float = 1.0,
    macro: float = 0.0,
    images: int = 1000,
    weights: str = "w" * 64,
) -> Record:
    """One record; `accuracy` by domain, none if it failed."""
    name = method or label.split(" ")[0]
    run = Run(
        data=data or {"name": "digits"},
        data_hash="d" * 64,
        model={"spec": "digits:resnet8", "num_classes": 10, "head": None},
        weights_hash=weights,
        method=name,
        hyperparameters=hyperparameters or {},
        order="continual",
        order_options=order_options or {},
        batch_size=64,
        seed=seed,
    )
    found = accuracy or {}
    rows = [
        {
            "domain": domain,
            "images": images,
            "accuracy": value,
            "accuracy_macro": value - macro,
            "collapsed": False,
            "seconds_per_batch": seconds / 10,
            "batches": 10,
            "passes": PASSES.get(name, "1F+1B"),
            "nrs_before": 0.5,
            "nrs_after": 0.4,
            "ece": 0.1,
        }
        for domain, value in found.items()
    ]
    mean = sum(found.values()) / len(found) if found else 0.0
    return Record(
        run=vars(run) | {},
        key=run.key,
        status="failed" if error else "done",
        tags={"suite": suite, "case": case, "label": label}
        | ({"tuning": tuning} if tuning else {}),
        rows=rows,
        overall={
            "mean_over_domains": mean,
            "accuracy": mean,
            "accuracy_macro": mean - macro,
            "ece": 0.1,
            "images": images * len(rows),
            "batches": 10 * len(rows),
            "seconds": seconds * len(rows),
            "seconds_per_batch": seconds / 10,
            "collapsed": False,
        }
        if rows
        else {},
        settings={"predict": "before"},
        provenance={
            "fretta": "0.1.0",
            "commit": "c" * 40,
            "dirty": dirty,
            "python": "3.11.7",
            "torch": "2.13.0",
            "system": "Linux",
            "processor": "A processor",
            "device": "cpu",
            "threads": 1,
            "peak_memory": 400 * 2**20,
            "finished": 1_790_000_000 + seed,
        },
        error=error,
    )


def details(made: Record, seed: int = 0) -> dict[str, Any]:
    """What figures need, in the shape that runs store it."""
    draw = random.Random(seed)
    names = [row["domain"] for row in made.rows]
    share = [row["accuracy"] for row in made.rows]
    batches = [(n, s) for n, s in zip(names, share, strict=True) for _ in range(10)]
    return {
        "domains": [
            {
                "domain": n,
                "class_seen": [10] * 10,
                "class_right": [round(10 * s)] * 10,
                "class_predicted": [10] * 10,
                "bin_count": [10] * 15,
                "bin_confidence": [10 * (i + 0.5) / 15 for i in range(15)],
                "bin_right": [round(10 * s)] * 15,
            }
            for n, s in zip(names, share, strict=True)
        ],
        "confusion": [[90 if i == j else 1 for j in range(10)] for i in range(10)],
        "batches": {
            "domain": [n for n, _ in batches],
            "images": [64] * len(batches),
            "right": [min(64, max(0, round(64 * draw.gauss(s, 0.02)))) for _, s in batches],
            "entropy": [0.5] * len(batches),
            "seconds": [0.1] * len(batches),
            "pass_rate": [None] * len(batches),
        },
    }


def level(draw: random.Random, label: str, methods: Sequence[str] = METHODS) -> float:
    """A believable accuracy: methods in order, with a little noise."""
    base = label.split(" ")[0]
    place = methods.index(base) if base in methods else len(methods)
    return min(0.99, max(0.01, 0.5 + 0.03 * place + draw.gauss(0, 0.004)))


def corruption_records(
    suite: str = "cifar10c", seeds: Sequence[int] = (0, 1, 2), labels: Sequence[str] = METHODS
) -> list[Record]:
    draw = random.Random(1)
    return [
        record(
            label,
            seed,
            suite=suite,
            case=suite,
            data={"name": suite, "severity": 5},
            accuracy={name: level(draw, label) for name in CORRUPTIONS},
            seconds=1.0 + METHODS.index(label),
        )
        for label in labels
        for seed in seeds
    ]


def domain_records(
    suite: str = "pacs",
    domains: Sequence[str] = ("art_painting", "cartoon", "photo", "sketch"),
    backbones: Sequence[str] = ("resnet18", "resnet50"),
    seeds: Sequence[int] = (0, 1, 2),
    labels: Sequence[str] = METHODS,
) -> list[Record]:
    draw = random.Random(2)
    return [
        record(
            label,
            seed,
            suite=suite,
            case=f"{backbone}/{domain.replace(' ', '')}",
            data={"name": suite, "domains": [domain]},
            accuracy={domain: level(draw, label)},
            weights=f"{backbone}-{domain}",
        )
        for backbone in backbones
        for label in labels
        for domain in domains
        for seed in seeds
    ]


def shift_records(seeds: Sequence[int] = (0, 1, 2)) -> list[Record]:
    draw = random.Random(3)
    return [
        record(
            label,
            seed,
            suite="cifar100c-lt",
            case=f"IF={factor}",
            data={"name": "cifar100c-lt", "imbalance": factor, "severity": 5},
            accuracy={name: level(draw, label) for name in CORRUPTIONS},
            macro=0.02,
        )
        for label in METHODS
        for factor in (1, 10, 100)
        for seed in seeds
    ]


def fill(folder: Path, records: Sequence[Record], with_details: bool = False) -> Store:
    """A store of these, written without waiting for the disk."""
    (folder / "records").mkdir(parents=True, exist_ok=True)
    (folder / "details").mkdir(exist_ok=True)
    for number, made in enumerate(records):
        (folder / "records" / f"{made.key}.json").write_bytes(made.to_bytes())
        if with_details and made.rows:
            import json

            text = json.dumps(details(made, number))
            (folder / "details" / f"{made.key}.json").write_text(text)
    return Store(folder)


def many(count: int = 2000) -> list[Record]:
    """A large store: all suites of the paper that have records of these shapes."""
    found = [
        *corruption_records("cifar10c", range(5)),
        *corruption_records("cifar100c", range(5)),
        *shift_records(range(5)),
        *domain_records(seeds=range(5)),
        *domain_records("officehome", ("Art", "Clipart", "Product", "Real World"), seeds=range(5)),
        *domain_records(
            "vlcs",
            ("Caltech101", "LabelMe", "SUN09", "VOC2007"),
            ("resnet18", "resnet50", "vit_b_16"),
            range(5),
        ),
        *domain_records(
            "domainnet",
            ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
            ("resnet18", "resnet50"),
            range(5),
        ),
    ]
    return found[:count]
