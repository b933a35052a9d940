"""Is "does adapting help?" left unanswered where classes are uneven, and only there?

    FRETTA_DATA=... python benchmarks/uneven.py --raw raw/ --out evidence/benchmarks/uneven.json
    python -m evidence.build

Streams with balanced classes, with one frequent class, with two classes only and with a long tail,
of CIFAR-10 (ResNet-20), digits and PACS art_painting (EfficientNet-Lite0 at 160 pixels); batch
statistics, and on some streams other methods and learning rates that ruin the model. The logits of
every stream are stored once (one .npz each; about 15 minutes on one idle core).
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from written import write

import fretta
from fretta.data import CORRUPTIONS, Domain, Preprocessing, open_dataset
from fretta.data.order import long_tail_counts
from fretta.errors import FrettaWarning
from fretta.estimate import estimate
from fretta.models import load, load_source
from fretta.models.load import find_weights

Settings = dict[str, tuple[str, dict[str, Any]]]
BN: Settings = {"source": ("source", {}), "bn": ("bn", {})}
MORE: Settings = {**BN, "tent": ("tent", {"lr": 1e-2}), "g-fret": ("g-fret", {})}
HARM: Settings = {
    "source": ("source", {}),
    "tent.1": ("tent", {"lr": 1e-1}),
    "sfret.1": ("s-fret", {"lr": 1e-1}),
    "mix": ("bn", {"alpha": 0.25}),
}
SHIFTS = [("clean", 5), ("fog", 5), ("gaussian_noise", 5), ("contrast", 5), ("fog", 2)]
SHIFTS += [("jpeg_compression", 3)]
EVEN = [0.1] * 10


@dataclass(frozen=True)
class Case:
    group: str
    name: str
    data: str
    domain: str
    shares: list[float]  # of the classes
    seed: int
    severity: int = 5
    images: int = 512
    batch_size: int = 64
    settings: Settings = field(default_factory=lambda: BN)
    pair: tuple[int, int] | None = None  # a network of these two classes alone


def frequent(classes: int, number: int, share: float) -> list[float]:
    rest = (1 - share) / (classes - 1)
    return [share if c == number else rest for c in range(classes)]


def only(*numbers: int) -> list[float]:
    return [1 / len(numbers) if c in numbers else 0.0 for c in range(10)]


def tail(factor: int, seed: int) -> list[float]:
    counts = np.array(long_tail_counts(100_000, 10, factor), float)
    return list(np.random.RandomState(seed).permutation(counts / counts.sum()))


def cases() -> Iterator[Case]:
    for c in ("clean", *CORRUPTIONS):
        more = MORE if c in ("fog", "gaussian_noise", "clean", "contrast") else BN
        yield Case("CIFAR-10, balanced", f"B.cifar.{c}", "cifar10", c, EVEN, 0, settings=more)
    for c in CORRUPTIONS:
        yield Case("CIFAR-10, balanced", f"B.cifar2.{c}", "cifar10", c, EVEN, 3, 2)
    for number, share, word in ((3, 0.8, "cat80"), (8, 0.7, "ship70"), (1, 0.5, "auto50")):
        shares, name = frequent(10, number, share), f"U.cifar.clean.{word}"
        yield Case("CIFAR-10, one frequent", name, "cifar10", "clean", shares, 0, settings=MORE)
    for c, s in SHIFTS:
        for number in (3, 8, 1, 6):
            for share in (0.2, 0.3, 0.4, 0.5, 0.8):
                name = f"U.cifar.{c}{s}.{number}.{int(100 * share)}"
                shares = frequent(10, number, share)
                yield Case("CIFAR-10, one frequent", name, "cifar10", c, shares, 1, s)
        for a, b in ((3, 5), (1, 9), (0, 8)):
            name = f"U.cifar.{c}{s}.pair{a}{b}"
            yield Case("CIFAR-10, two of ten", name, "cifar10", c, only(a, b), 1, s)
        for factor in (10, 100):
            for seed in range(3):
                name = f"L.cifar.{c}{s}.lt{factor}.{seed}"
                shares = tail(factor, seed)
                yield Case("CIFAR-10, long tail", name, "cifar10", c, shares, seed, s)
    for c in ("clean", "gaussian_noise", "fog"):
        for number, share in ((3, 0.8), (8, 0.7), (1, 0.5)):
            name = f"H.cifar.{c}.{number}.{int(100 * share)}"
            shares = frequent(10, number, share)
            yield Case(
                "CIFAR-10, one frequent, other methods",
                name,
                "cifar10",
                c,
                shares,
                2,
                settings=HARM,
            )
        for pair in ((3, 5), (1, 9), (0, 8)):
            for share in (0.5, 0.65, 0.8, 0.9):
                even = "B" if share == 0.5 else "U"
                name = f"T{even}.cifar.{c}.{pair[0]}{pair[1]}.{int(100 * share)}"
                group = f"two classes, {'balanced' if share == 0.5 else 'uneven'}"
                yield Case(group, name, "cifar10", c, [share, 1 - share], 2, pair=pair)
    for c in CORRUPTIONS:
        yield Case("digits, balanced", f"B.digits.{c}", "digits", c, EVEN, 0, settings=MORE)
        small = {"images": 256, "batch_size": 32}
        yield Case("digits, balanced", f"B.digits32.{c}", "digits", c, EVEN, 1, **small)
        for number in (1, 8, 3):
            for share in (0.3, 0.5, 0.8):
                name = f"U.digits.{c}.{number}.{int(100 * share)}"
                shares = frequent(10, number, share)
                yield Case("digits, one frequent", name, "digits", c, shares, 1, **small)
        for seed in range(2):
            name = f"L.digits.{c}.lt10.{seed}"
            yield Case("digits, long tail", name, "digits", c, tail(10, seed), seed, **small)
    person = frequent(7, 6, 0.79)
    yield Case("PACS, 79 % persons", "U.pacs.art.person79", "pacs", "art_painting", person, 0)


# ---- logits -------------------------------------------------------------------------------------


class Two(nn.Module):
    """The network with two of its classes."""

    def __init__(self, net: nn.Module, pair: tuple[int, int]) -> None:
        super().__init__()
        self.net, head = net, net.get_submodule("linear")
        self.net.linear = nn.Linear(64, 2)
        with torch.no_grad():
            self.net.linear.weight.copy_(head.weight[list(pair)])  # type: ignore[index]
            self.net.linear.bias.copy_(head.bias[list(pair)])  # type: ignore[index]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.net(x)
        return logits


@cache
def network(data: str, pair: tuple[int, int] | None) -> tuple[nn.Module, Preprocessing]:
    if data == "digits":
        net, card = load_source("digits")
        return net, Preprocessing.from_json(card.preprocessing)
    if data == "pacs":
        weights = find_weights("pacs_art_painting_tf_efficientnet_lite0.safetensors", None)
        return load("timm:tf_efficientnet_lite0", weights, 7), Preprocessing(size=160)
    net = load("cifar:resnet20", find_weights("cifar10_resnet20.safetensors", None), 10)
    return (net if pair is None else Two(net, pair).eval()), Preprocessing(size=32)


@cache
def domain_of(data: str, domain: str, severity: int) -> Domain:
    if data != "cifar10":
        options = {"size": 160} if data == "pacs" else {}
        return open_dataset(data, **options).domain(domain)
    options = {} if domain == "clean" else {"corruption": domain, "severity": severity}
    return open_dataset(data, **options).domains[0]


def chosen(labels: NDArray[np.int64], case: Case) -> NDArray[np.int64]:
    """Random images with these shares of the classes, in random order."""
    random, images = np.random.RandomState(case.seed), case.images
    if case.data == "digits" and max(case.shares) >= 0.3:  # as many as the frequent class allows
        most = int(np.argmax(case.shares))
        images = min(images, int((labels == most).sum() / max(case.shares)))
    counts = np.floor((np.array(case.shares) + 1e-9) * images).astype(int)
    parts = [random.permutation(np.flatnonzero(labels == c))[:n] for c, n in enumerate(counts)]
    return np.asarray(random.permutation(np.concatenate(parts)))


def collect(case: Case, file: Path) -> None:
    net, preprocessing = network(case.data, case.pair)
    domain = domain_of(case.data, case.domain, case.severity)
    if case.pair is not None:
        domain = domain.subset(np.flatnonzero(np.isin(domain.labels, case.pair)))
    labels = domain.labels if case.pair is None else domain.labels == case.pair[1]
    index = chosen(np.asarray(labels, np.int64), case)
    x = preprocessing.apply(torch.from_numpy(domain.read(index)).permute(0, 3, 1, 2))
    found: dict[str, NDArray[Any]] = {"labels": np.asarray(labels)[index]}
    for title, (name, settings) in case.settings.items():
        adapter = fretta.adapt(net, name, **settings)
        found[title] = np.concatenate([adapter(b).numpy() for b in x.split(case.batch_size)])
    np.savez_compressed(file, **found)


# ---- what is made of them -----------------------------------------------------------------------


def rows_of(raw: Path) -> Iterator[dict[str, Any]]:
    for case in cases():
        with np.load(raw / f"{case.name}.npz") as stored:
            content = {k: torch.from_numpy(v) for k, v in stored.items()}
        y = content.pop("labels").long()
        source = content.pop("source")
        prior = (torch.bincount(y, minlength=source.shape[1]) / len(y)).tolist()
        before = float((source.argmax(1) == y).double().mean())
        for method, adapted in content.items():
            pair = [x.split(case.batch_size) for x in (source, adapted)]
            found, told = estimate(*pair), estimate(*pair, prior=prior)
            with patch("fretta.estimate.estimator.dominant_class", return_value=None):
                interval = estimate(*pair)  # the check switched off
            after = float((adapted.argmax(1) == y).double().mean())
            yield {
                "group": case.group,
                "stream": case.name,
                "method": method,
                "images": len(y),
                "true": after - before,
                "change": found.change,
                "uneven": found.uneven is not None,
                "helps": found.helps,
                "unchecked": interval.helps,
                "prior": told.helps,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--raw", type=Path, required=True, help="folder of the stored logits")
    parser.add_argument("--out", default="uneven.json", help="what came out, run by run")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FrettaWarning)
    arguments.raw.mkdir(parents=True, exist_ok=True)
    for case in cases():
        file = arguments.raw / f"{case.name}.npz"
        if not file.is_file():
            collect(case, file)
            print(case.name, flush=True)
    rows = list(rows_of(arguments.raw))
    columns = list(rows[0])
    content = {"columns": columns, "rows": [[row[c] for c in columns] for row in rows]}
    write(arguments.out, content, compact=True)


if __name__ == "__main__":
    main()
