"""Does redundancy grow with the shift, and does adaptation reduce it? (Figure 1 of the paper.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...adapter import Adapter
from ...data import Dataset
from ...errors import ConfigError, MissingExtraError
from ...parts.redundancy import redundancy, unit_columns
from .setting import OnBatch, Setting, Subject, finite, in_step

CORRUPTIONS = ("gaussian_noise", "defocus_blur", "fog", "contrast", "pixelate")
SEVERITIES = (1.0, 2.0, 3.0, 4.0, 5.0)
FEATURES = 128  # at most so many are drawn


def redundancy_under_shift(
    setting: Setting,
    corruptions: Sequence[str] = CORRUPTIONS,
    severities: Sequence[float] = SEVERITIES,
    on_batch: OnBatch | None = None,
) -> dict[str, Any]:
    """NRS and accuracy by corruption, severity and method; the relation graph, clean and shifted.

    Each severity is one stream over all corruptions in which every method starts afresh. Accuracy
    is that of the predictions made on the way; NRS that of each batch under the model as adapted
    by then, this batch included. Severity 0 is the clean data.
    """
    if not corruptions or not severities:
        raise ConfigError("an empty list of corruptions or severities; give at least one of each")
    clean = setting.clean()
    levels = [(0.0, clean)] if clean is not None else []
    levels += [(float(s), setting.shifted(corruptions, s)) for s in sorted(set(severities))]
    subject = setting.subject(levels[0][1])
    points: list[dict[str, Any]] = []
    features = 0
    for number, (severity, dataset) in enumerate(levels):

        def tell(done: int, total: int, before: int = number) -> None:
            if on_batch is not None:
                on_batch(before * total + done, len(levels) * total)

        found, features = _measure(subject, dataset, tell)
        points += [{"severity": severity, **point} for point in found]
    target = levels[-1][1]
    return {
        **subject.about(
            "redundancy", f"Redundancy under shift: {setting.data['name']}, {subject.facts['spec']}"
        ),
        "corruptions": list(corruptions),
        "features": features,  # d
        "points": points,
        "relation": _relation(subject, clean, target) if clean is not None else None,
    }


def _measure(
    subject: Subject, dataset: Dataset, on_batch: OnBatch
) -> tuple[list[dict[str, Any]], int]:
    """One point per corruption and method, and the number of features."""
    setting, adapters = subject.setting, subject.adapters()
    stream = setting.stream(dataset)
    seen: dict[tuple[str, str], _Point] = {}
    d = 0
    for batch, x in in_step(stream, adapters, subject.preprocessing, setting.device, on_batch):
        names = [_corruption(dataset, int(which)) for which in batch.domains]
        for method, adapter in adapters.items():
            right = (adapter(x).argmax(1).cpu() == batch.y).numpy()
            z, _ = adapter.features(x)
            d = z.shape[1]
            for name in dict.fromkeys(names):
                point = seen.setdefault((name, method), _Point())
                mine = np.array([n == name for n in names])
                point.images += int(mine.sum())
                point.right += int(right[mine].sum())
                if mine.all():
                    point.scores.append((len(x), float(redundancy(z, normalized=True))))
    return [
        {"corruption": name, "method": method, **point.values()}
        for (name, method), point in seen.items()
    ], d


def _corruption(dataset: Dataset, which: int) -> str:
    domain = dataset.domains[which]
    return domain.corruption or "clean"


class _Point:
    """Counts over the batches of one corruption."""

    def __init__(self) -> None:
        self.images = self.right = 0
        self.scores: list[tuple[int, float]] = []  # (size, NRS) of batches of this one alone

    def values(self) -> dict[str, Any]:
        # NRS depends on the size of a batch (few images look alike): full batches only
        full = max((size for size, _ in self.scores), default=0)
        scores = [score for size, score in self.scores if size == full]
        return {
            "images": self.images,
            "accuracy": self.right / self.images,
            "nrs": finite(float(np.mean(scores)), 9) if scores else None,
        }


def means(content: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Per method, one row per severity: NRS and accuracy, averaged over the corruptions."""
    table: dict[str, list[dict[str, Any]]] = {}
    for method in content["methods"]:
        mine = [p for p in content["points"] if p["method"] == method and p["nrs"] is not None]
        table[method] = [
            {
                "severity": severity,
                **{
                    value: float(np.mean([p[value] for p in mine if p["severity"] == severity]))
                    for value in ("nrs", "accuracy")
                },
            }
            for severity in sorted({p["severity"] for p in mine})
        ]
    return table


# ---- the relation graph ------------------------------------------------------------------------


def _relation(subject: Subject, clean: Dataset, target: Dataset) -> dict[str, Any]:
    """|Z̃ᵀZ̃| of the source model on clean images and on those of the first corruption."""
    source = subject.adapter("source")
    z, y = _embedded(subject, source, clean), _embedded(subject, source, target)
    d = z.shape[1]
    chosen = np.arange(d)
    if d > FEATURES:
        chosen = np.sort(
            np.random.default_rng(subject.setting.seed).choice(d, FEATURES, replace=False)
        )
    graphs = [_graph(values)[np.ix_(chosen, chosen)] for values in (z, y)]
    order = _clustered(graphs[0])
    domain = target.domains[0]
    return {
        "features": chosen[order].tolist(),
        "of": d,
        "clean": np.round(graphs[0][np.ix_(order, order)], 3).tolist(),
        "shifted": np.round(graphs[1][np.ix_(order, order)], 3).tolist(),
        "images": [len(z), len(y)],
        "nrs": [float(redundancy(values, normalized=True)) for values in (z, y)],
        "target": {"corruption": domain.corruption, "severity": domain.severity},
    }


def _embedded(subject: Subject, adapter: Adapter, dataset: Dataset) -> Tensor:
    """Features of all images of the first domain, (n, d)."""
    setting = subject.setting
    first = dataset.only([dataset.domains[0].name])
    stream = setting.stream(first)
    x = (subject.preprocessing.apply(batch.x, setting.device) for batch in stream)
    return torch.cat([adapter.features(batch)[0].float().cpu() for batch in x])


def _graph(z: Tensor) -> NDArray[np.float64]:
    unit = unit_columns(z.double())
    graph: NDArray[np.float64] = (unit.T @ unit).abs().numpy()
    return graph


def _clustered(graph: NDArray[np.float64]) -> NDArray[np.int64]:
    """Features that resemble each other stand side by side: leaves of average linkage."""
    if len(graph) < 3:
        return np.arange(len(graph))
    try:
        from scipy.cluster.hierarchy import leaves_list, linkage
        from scipy.spatial.distance import squareform
    except ModuleNotFoundError as error:
        raise MissingExtraError("scipy", "data", "ordering features by likeness") from error
    distance = np.clip(1 - (graph + graph.T) / 2, 0, None)
    np.fill_diagonal(distance, 0)
    tree = linkage(squareform(distance, checks=False), "average", optimal_ordering=True)
    return np.asarray(leaves_list(tree), dtype=np.int64)
