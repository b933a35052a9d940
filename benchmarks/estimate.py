"""How good is the label-free answer to "does adapting help?"

    FRETTA_DATA=... python benchmarks/estimate.py --raw raw/ [--only cifar-s5a ...]
    python benchmarks/estimate.py --raw raw/ --report --out evidence/benchmarks/estimate.json
    python -m evidence.build

Runs methods, among them learning rates that ruin the model, over CIFAR-10 under corruptions
(ResNet-20), PACS (EfficientNet-Lite0 at 160 pixels) and digits, in several orders; stores the
logits of every run once (one .npz per condition; about 25 minutes on one idle core). The second
command writes what fretta.estimate makes of them beside the true accuracies (a minute), the third
prints the tables of docs/estimate.md.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import open_benchmark, write_rows
from numpy.typing import NDArray

from fretta.data import CORRUPTIONS
from fretta.errors import FrettaWarning
from fretta.estimate import estimate
from fretta.experiment.loop import stream_through
from fretta.parts.redundancy import redundancy

Setting = tuple[str, dict[str, Any]]
RUINOUS: list[Setting] = [
    ("tent", {"lr": 1e-1}),
    ("g-fret", {"lr": 1e-1}),
    ("s-fret", {"lr": 1e-1}),
]
CHEAP: list[Setting] = [
    *((name, {}) for name in ("source", "bn", "tent", "eta", "tsd", "s-fret", "g-fret")),
    ("tent", {"lr": 1e-2}),
    *RUINOUS,
]
ALL: list[Setting] = [*CHEAP, ("sar", {}), ("tipi", {})]
FEW: list[Setting] = [(n, {}) for n in ("source", "bn", "tent", "eta", "s-fret", "g-fret")]
FEW += RUINOUS[:2]
UNEVEN: list[Setting] = [*FEW[:-1], ("tent", {"lr": 1e-2})]
SMALL: list[Setting] = [(n, {}) for n in ("source", "bn", "tent", "g-fret")]
RUIN: list[Setting] = [(n, {"lr": 1.0}) for n in ("tent", "eta", "s-fret", "g-fret")]
RUIN += [("source", {}), ("tsd", {"lr": 1e-1})]
SIX = "gaussian_noise defocus_blur fog frost contrast jpeg_compression".split()  # noqa: SIM905
REST = [c for c in CORRUPTIONS if c not in SIX]


@dataclass(frozen=True)
class Condition:
    data: str
    options: dict[str, Any]
    settings: list[Setting]
    batch_size: int
    images: int  # per domain
    order: str = "independent"
    features: bool = False  # also NRS, at the price of a forward


ART: dict[str, Any] = {"domains": ["art_painting"]}
CONDITIONS = {
    "cifar-s5a": Condition("cifar10", _c := {"corruption": SIX}, ALL, 64, 256, features=True),
    "cifar-s5b": Condition("cifar10", {"corruption": REST}, [*CHEAP, ("sar", {})], 64, 256),
    "cifar-s2": Condition("cifar10", {"corruption": REST[::2], "severity": 2}, CHEAP, 64, 256),
    "cifar-clean": Condition("cifar10", {}, CHEAP, 64, 320),
    "cifar-corr": Condition("cifar10", _c, CHEAP, 64, 256, "independent+correlated"),
    "cifar-lt": Condition(
        "cifar10", {**_c, "severity": 4}, UNEVEN, 64, 640, "independent+long-tailed"
    ),
    "cifar-b4": Condition("cifar10", {**_c, "severity": 3}, SMALL, 4, 128),
    "pacs": Condition("pacs", ART, CHEAP, 32, 192, features=True),
    "pacs-sar": Condition("pacs", ART, [("source", {}), ("sar", {}), ("tipi", {})], 32, 192),
    "pacs-c": Condition(
        "pacs",
        {**ART, "corruption": ["gaussian_noise", "fog", "pixelate"], "severity": 3},
        FEW,
        32,
        96,
    ),
    "pacs-photo": Condition(
        "pacs", {"domains": ["photo", "cartoon"]}, [s for s in FEW if s[0] != "eta"], 32, 96
    ),
    "pacs-corr": Condition("pacs", ART, FEW, 32, 160, "independent+correlated"),
    "pacs-b4": Condition("pacs", ART, SMALL, 4, 96),
    "digits": Condition("digits", {}, ALL, 32, 256, features=True),
    "digits-corr": Condition("digits", {}, CHEAP, 32, 256, "independent+correlated"),
    "digits-lt": Condition("digits", {}, UNEVEN, 32, 360, "independent+long-tailed"),
    "digits-ruin": Condition("digits", {}, RUIN, 32, 360),
    "digits-b4": Condition("digits", {}, SMALL, 4, 128),
}


# ---- logits -------------------------------------------------------------------------------------


def title(name: str, settings: dict[str, Any]) -> str:
    return " ".join([name, *(f"{k}={v:g}" for k, v in settings.items())])


def collect(condition: Condition, file: Path) -> None:
    case = open_benchmark(condition.data, **condition.options)
    stream = case.stream(condition.order, batch_size=condition.batch_size, limit=condition.images)
    adapters = {
        title(n, settings): case.adapter(n, **settings) for n, settings in condition.settings
    }
    found: dict[str, list[Any]] = {}
    for item, steps in stream_through(adapters, case.items(stream)):
        found.setdefault(f"{item.domain}|labels", []).append(item.y.numpy())
        found.setdefault(f"{item.domain}|batch", []).append(np.full(len(item.x), item.number))
        for name, step in steps.items():
            key = f"{item.domain}|{name}"
            found.setdefault(key, []).append(step.logits.numpy())
            if condition.features:
                score = redundancy(adapters[name].features(item.x)[0], normalized=True)
                found.setdefault(f"{key}|nrs", []).append(np.array([float(score)]))
        print(f"{file.stem}: batch {item.number + 1} of {len(stream)}", flush=True)
    np.savez_compressed(file, **{k: np.concatenate(v) for k, v in found.items()})


# ---- what is made of them -----------------------------------------------------------------------


ESTIMATED = ("change", "low", "high", "adapted", "helps", "collapsed")
SCORES = ("confidence", "-entropy", "4 ln E - H", "-NRS")


def rows_of(raw: Path) -> Iterator[dict[str, Any]]:
    """Each method on each domain: the estimate, other scores, and the truth."""
    for name in CONDITIONS:
        file = raw / f"{name}.npz"
        if not file.is_file():
            continue
        with np.load(file) as stored:
            content = dict(stored)
        for key, adapted in content.items():
            domain, setting, *more = key.split("|")
            if more or setting in ("labels", "batch", "source"):
                continue
            source, y = content[f"{domain}|source"], content[f"{domain}|labels"]
            edges = np.flatnonzero(np.diff(content[f"{domain}|batch"])) + 1
            pair = [[torch.from_numpy(p) for p in np.split(x, edges)] for x in (source, adapted)]
            result = estimate(*pair)  # benchmarks/verdicts.py is about its interval
            before, after = _scores(source), _scores(adapted)
            scores = {k: after[k] - before[k] for k in before}
            nrs = [content.get(f"{domain}|{s}|nrs") for s in (setting, "source")]
            if nrs[0] is not None and nrs[1] is not None:
                scores["-NRS"] = float(nrs[1].mean() - nrs[0].mean())
            accuracies = [float((p.argmax(1) == y).mean()) for p in (adapted, source)]
            row: dict[str, Any] = {"condition": name, "domain": domain, "setting": setting}
            row |= {"accuracy": accuracies[0], "source": accuracies[1]}
            row |= {k: getattr(result, k) for k in ESTIMATED}
            yield row | {k: scores.get(k) for k in SCORES}


def _scores(logits: NDArray[np.float32]) -> dict[str, float]:
    """Simple label-free scores; larger is meant to be better."""
    log_p = torch.from_numpy(logits).double().nan_to_num(0.0).log_softmax(1)
    p = log_p.exp()
    entropy = float(-(p * log_p).sum(1).mean())
    share = torch.bincount(p.argmax(1), minlength=p.shape[1]) / len(p)
    diversity = float(torch.special.entr(share).sum())  # ln E
    return {
        "confidence": float(p.amax(1).mean()),
        "-entropy": -entropy,
        "4 ln E - H": 4 * diversity - entropy,
    }


# ---- other estimators ---------------------------------------------------------------------------


def with_source_labels(raw: Path) -> dict[str, list[float]]:
    """What labeled source images would buy, and other estimators: CIFAR-10, clean images given.

    The mean error of the change and of the level, by name.
    """
    from scipy.optimize import linear_sum_assignment

    if not (raw / "cifar-clean.npz").is_file():
        return {}
    with np.load(raw / "cifar-clean.npz") as stored:
        clean, y = (
            torch.from_numpy(stored["clean|source"]),
            torch.from_numpy(stored["clean|labels"]),
        )
    grid = np.geomspace(0.5, 4, 60)
    loss = torch.nn.functional.cross_entropy
    temperature = float(grid[np.argmin([float(loss(clean / t, y)) for t in grid])])
    right = float((clean.argmax(1) == y).double().mean())
    threshold = float(clean.softmax(1).amax(1).quantile(1 - right))  # ATC: share above = accuracy

    def confidence(logits: torch.Tensor) -> float:
        return float(logits.softmax(1).amax(1).mean())

    def transport(logits: torch.Tensor) -> float:
        """COT: the best assignment of answers to balanced classes."""
        p = logits.softmax(1).numpy()
        columns = np.arange(len(p)) % p.shape[1]
        rows, chosen = linear_sum_assignment(-p[:, columns])
        return float(p[rows, columns[chosen]].mean())

    single = {
        "mean confidence": confidence,
        f"mean confidence at temperature {temperature:.2f}": lambda x: confidence(x / temperature),
        "ATC": lambda x: float((x.softmax(1).amax(1) > threshold).double().mean()),
        "COT with balanced classes": transport,
    }
    errors: dict[str, list[tuple[float, float]]] = {}
    for source, adapted, edges, labels in logits_of(raw, "cifar"):
        truth = [float((x.argmax(1) == labels).double().mean()) for x in (source, adapted)]
        values = {name: (f(source), f(adapted)) for name, f in single.items()}
        for name, t in (
            ("estimate", 1.0),
            (f"estimate at temperature {temperature:.2f}", temperature),
        ):
            parts = [np.split(x.numpy(), edges) for x in (source, adapted)]
            found = estimate(*([torch.from_numpy(b) for b in p] for p in parts), temperature=t)
            values[name] = found.source, found.adapted
        for name, (before, after) in values.items():
            error = after - before - (truth[1] - truth[0]), after - truth[1]
            errors.setdefault(name, []).append(error)
    return {name: np.abs(np.array(each)).mean(0).tolist() for name, each in errors.items()}


def logits_of(
    raw: Path, family: str
) -> Iterator[tuple[torch.Tensor, torch.Tensor, NDArray[np.int64], torch.Tensor]]:
    """(source logits, adapted logits, edges of batches, labels) of every run."""
    for file in sorted(raw.glob(f"{family}-*.npz")):
        with np.load(file) as stored:
            content = dict(stored)
        for key, adapted in content.items():
            domain, setting, *more = key.split("|")
            if not more and setting not in ("labels", "batch", "source"):
                source, y = content[f"{domain}|source"], content[f"{domain}|labels"]
                edges = np.flatnonzero(np.diff(content[f"{domain}|batch"])) + 1
                yield (
                    *(torch.from_numpy(x) for x in (source, np.nan_to_num(adapted))),
                    edges,
                    (torch.from_numpy(y)),
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--raw", type=Path, required=True, help="folder of the stored logits")
    parser.add_argument("--only", nargs="*", default=list(CONDITIONS), choices=list(CONDITIONS))
    parser.add_argument("--report", action="store_true", help="run no model")
    parser.add_argument("--out", default="estimate.json", help="what came out, run by run")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FrettaWarning)
    arguments.raw.mkdir(parents=True, exist_ok=True)
    for name in [] if arguments.report else arguments.only:
        file = arguments.raw / f"{name}.npz"
        if not file.is_file():
            collect(CONDITIONS[name], file)
    others = with_source_labels(arguments.raw)
    write_rows(arguments.out, rows_of(arguments.raw), others=others)


if __name__ == "__main__":
    main()
