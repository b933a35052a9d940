"""Is the verdict without labels right, whatever the shares of the classes?

    FRETTA_DATA=... python benchmarks/verdicts.py --raw raw/ --out evidence/benchmarks/verdicts.json
    FRETTA_DATA=... python benchmarks/verdicts.py --methods auto,stein --only report \
        --raw raw-auto/ --out evidence/benchmarks/verdicts-auto.json
    python -m evidence.build

Streams of CIFAR-10 (ResNet-20), digits and PACS (EfficientNet-Lite0 at 160 pixels), clean and
shifted, whose largest class holds 10 to 95 % of the images, and every method of the library but
tea. The logits of each stream are stored once (one .npz each), so that a run can be stopped and
goes on. Streams of the part `choose` were looked at when constants were chosen; they share neither
the frequent class nor the images' order with those of `report`. PACS is in `report` alone.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import open_benchmark, write_rows
from numpy.typing import NDArray

import fretta
from fretta.data import CORRUPTIONS
from fretta.data.order import long_tail_counts
from fretta.errors import FrettaWarning
from fretta.estimate import SourceFacts, estimate
from fretta.estimate.verdict import verdict
from fretta.experiment.case import Case
from fretta.methods import list_methods

LEFT_OUT = "tea"
CLASSES = {"choose": (1, 3, 8, 6), "report": (0, 2, 4, 5, 7, 9)}  # the frequent ones, of ten
SHARES = (0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
COUNTS = {"choose": (4, 12, 12, 24), "report": (8, 24, 24, 48)}  # clean, shifted; even, uneven
BATCH, IMAGES = 64, 256
SOURCE_IMAGES = 500  # labeled ones, of no stream


@dataclass(frozen=True)
class VerdictStream:
    part: str
    data: str
    domain: str  # clean, a corruption, or a domain of PACS
    severity: int
    shares: tuple[float, ...]
    seed: int
    shifted: bool

    @property
    def name(self) -> str:
        most = int(np.argmax(self.shares))
        share = f"{most}-{round(100 * max(self.shares))}"
        return f"{self.part}.{self.data}.{self.domain}{self.severity}.{share}.{self.seed}"

    @property
    def uneven(self) -> bool:
        return max(self.shares) > 1.5 / len(self.shares)


def streams() -> Iterator[VerdictStream]:
    for part, first in (("choose", 0), ("report", 1000)):
        yield from _streams(part, "digits", first, 0)
        yield from _streams(part, "cifar10", first, 0)
    yield from _streams("report", "digits", 3000, 3)  # more of those that cost little
    for number in range(12):
        domain = ("art_painting", "photo")[number % 2]
        share = (1 / 7, 0.3, 0.5, 0.7, 0.8, 0.95)[number // 2]
        most = (6, 0, 2, 4, 6, 1)[number // 2]
        rest = (1 - share) / 6
        shares = tuple(share if c == most else rest for c in range(7))
        yield VerdictStream("report", "pacs", domain, 0, shares, 2000 + number, number % 2 == 0)


def _streams(part: str, data: str, first: int, turn: int) -> Iterator[VerdictStream]:
    clean, shifted, clean_uneven, shifted_uneven = COUNTS[part]
    for number in range(clean + shifted):
        domain, severity = _domain(data, number - clean)
        even, seed = (0.1,) * 10, first + number
        yield VerdictStream(part, data, domain, severity, even, seed, number >= clean)
    for number in range(clean_uneven + shifted_uneven):
        domain, severity = _domain(data, number - clean_uneven)
        shares, seed = _uneven(number + turn, CLASSES[part]), first + 100 + number
        yield VerdictStream(part, data, domain, severity, shares, seed, number >= clean_uneven)


def _domain(data: str, number: int) -> tuple[str, int]:
    if number < 0:
        return "clean", 0
    severity = 0 if data == "digits" else (5, 3, 5)[number // 15 % 3]  # digits have their own
    return CORRUPTIONS[4 * number % 15], severity


def _uneven(number: int, classes: tuple[int, ...]) -> tuple[float, ...]:
    """One frequent class; now and then two, or a long tail."""
    most = classes[number * 7 // 6 % len(classes)]
    if number % 8 == 6:
        other = classes[(classes.index(most) + 1) % len(classes)]
        return tuple(0.5 if c in (most, other) else 0.0 for c in range(10))
    if number % 8 == 7:
        counts = np.array(long_tail_counts(100_000, 10, 10 if number % 16 < 8 else 100), float)
        shares = np.roll(counts / counts.sum(), most - int(counts.argmax()))
        return tuple(shares.tolist())
    share = SHARES[(number + number // 8) % len(SHARES)]
    return tuple(share if c == most else (1 - share) / 9 for c in range(10))


def methods_of(stream: VerdictStream) -> list[str]:
    """Batch statistics, and others in turns; all on digits, which cost little."""
    others = [m for m in list_methods() if m not in ("source", "bn", LEFT_OUT)]
    if stream.data == "digits":
        return ["bn", *others]
    if stream.data == "pacs":
        others.remove("tipi")  # slow
    some = 2 if stream.data == "cifar10" else 3
    return ["bn", *(others[(some * stream.seed + i) % len(others)] for i in range(some))]


# ---- logits -------------------------------------------------------------------------------------


@cache
def opened(data: str, domain: str, severity: int) -> tuple[Case, ...]:
    if data == "digits":
        corruption = None if domain == "clean" else domain
        splits = ("val", "test")
        return tuple(open_benchmark(data, split=s, corruption=corruption) for s in splits)
    if data == "pacs":
        return (open_benchmark(data, domains=[domain]),)
    options = {} if domain == "clean" else {"corruption": domain, "severity": severity}
    return (open_benchmark(data, **options),)


@cache
def source_images(data: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Clean labeled images that are in no stream."""
    if data == "digits":
        case = open_benchmark(data, split="train", corruption=None)
    else:
        case = open_benchmark(data, **({"domains": ["cartoon"]} if data == "pacs" else {}))
    domain = case.data.domains[0]
    rows = np.arange(len(domain.labels))
    rows = rows[reserved(len(rows))][:SOURCE_IMAGES]
    x = case.preprocessing.apply(torch.from_numpy(domain.read(rows)).permute(0, 3, 1, 2))
    return x, torch.from_numpy(np.asarray(domain.labels)[rows])


def reserved(images: int) -> NDArray[np.bool_]:
    """A tenth of the images, or SOURCE_IMAGES if that is more."""
    chosen = np.random.RandomState(99).permutation(images)[: max(SOURCE_IMAGES, images // 10)]
    return np.isin(np.arange(images), chosen)


def drawn(labels: NDArray[np.int64], stream: VerdictStream) -> NDArray[np.int64]:
    """Random images with these shares of the classes, as many as there are, in random order."""
    random, shares = np.random.RandomState(stream.seed), np.array(stream.shares)
    rows = np.arange(len(labels))
    free = ~reserved(len(labels)) if stream.data == "cifar10" else rows >= 0
    there = np.bincount(labels[free], minlength=len(shares))
    images = min([IMAGES, *(there[shares > 0] / shares[shares > 0])])
    counts = np.diff(np.round(np.cumsum(shares) * int(images)), prepend=0).astype(int)
    counts = np.minimum(counts, there)
    parts = [
        random.permutation(np.flatnonzero((labels == c) & free))[:n] for c, n in enumerate(counts)
    ]
    return np.asarray(random.permutation(np.concatenate(parts)))


def collect(stream: VerdictStream, methods: list[str], file: Path) -> None:
    cases = opened(stream.data, stream.domain, stream.severity)
    domains = [case.data.domains[0] for case in cases]
    labels = np.concatenate([np.asarray(d.labels) for d in domains])
    index = drawn(labels, stream)
    case = cases[0]
    if len(domains) == 1:
        pixels = domains[0].read(index)
    else:
        pixels = np.concatenate([d.read(np.arange(len(d.labels))) for d in domains])[index]
    x = case.preprocessing.apply(torch.from_numpy(pixels).permute(0, 3, 1, 2))
    logits: dict[str, NDArray[Any]] = {"labels": labels[index]}
    for name in ("source", *methods):
        source = source_images(stream.data)[0][:128].split(BATCH) if name == "eata" else None
        adapter = fretta.adapt(case.net, name, source=source)
        logits[name] = np.concatenate([adapter(b).detach().numpy() for b in x.split(BATCH)])
    part = file.with_suffix(".part.npz")
    np.savez_compressed(part, **logits)
    part.replace(file)


def collect_source(data: str, file: Path) -> None:
    x, y = source_images(data)
    domain = {"pacs": "cartoon"}.get(data, "clean")
    adapter = fretta.adapt(opened(data, domain, 0)[0].net, "source")
    logits = np.concatenate([adapter(b).detach().numpy() for b in x.split(BATCH)])
    np.savez_compressed(file, source=logits, labels=y.numpy())


# ---- what is made of them -----------------------------------------------------------------------


def facts_of(raw: Path, data: str) -> SourceFacts | None:
    file = raw / f"source.{data}.npz"
    if not file.is_file():
        return None
    with np.load(file) as stored:
        pair = (torch.from_numpy(stored[name]) for name in ("source", "labels"))
        return SourceFacts.measure([tuple(pair)])


def rows_of(raw: Path) -> Iterator[dict[str, Any]]:
    """Each method on each stream: the verdict, with and without source images, and the truth."""
    facts = {data: facts_of(raw, data) for data in ("digits", "cifar10", "pacs")}
    for stream in streams():
        if not (raw / f"{stream.name}.npz").is_file():
            continue
        with np.load(raw / f"{stream.name}.npz") as stored:
            content = {k: torch.from_numpy(v) for k, v in stored.items()}
        y, source = content.pop("labels").long(), content.pop("source")
        before = float((source.argmax(1) == y).double().mean())
        for method, adapted in content.items():
            pair = [x.split(BATCH) for x in (source, adapted)]
            row: dict[str, Any] = {"part": stream.part, "data": stream.data}
            row |= {"shifted": stream.shifted, "uneven": stream.uneven, "stream": stream.name}
            row |= {"share": float(y.bincount().max()) / len(y), "method": method, "images": len(y)}
            row["true"] = float((adapted.argmax(1) == y).double().mean()) - before
            for title, known in (("", None), ("source_", facts[stream.data])):
                found = estimate(*pair, source=known)
                row |= {f"{title}{k}": getattr(found, k) for k in ("change", "low", "high")}
                row[f"{title}verdict"] = verdict(found)
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--raw", type=Path, required=True, help="folder of the stored logits")
    parser.add_argument("--only", default="", help="run streams whose name begins so")
    parser.add_argument("--methods", help="these on every stream; default: most, in turns")
    parser.add_argument("--report", action="store_true", help="run no model")
    parser.add_argument("--out", default="verdicts.json", help="what came out, run by run")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FrettaWarning)
    arguments.raw.mkdir(parents=True, exist_ok=True)
    wanted = [s for s in streams() if not arguments.report and s.name.startswith(arguments.only)]
    for data in dict.fromkeys(stream.data for stream in wanted):
        file = arguments.raw / f"source.{data}.npz"
        if not file.is_file():
            collect_source(data, file)
    for stream in wanted:
        file = arguments.raw / f"{stream.name}.npz"
        if not file.is_file():
            chosen = arguments.methods
            collect(stream, chosen.split(",") if chosen else methods_of(stream), file)
            print(stream.name, flush=True)
    write_rows(arguments.out, rows_of(arguments.raw))


if __name__ == "__main__":
    main()
