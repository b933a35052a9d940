"""Does redundancy grow with the shift, and does adaptation reduce it? (Figure 1 of the paper.)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...data import dataset_options
from ...data.datasets import CLEAN, check_name
from ...data.digits import SEVERITY as DIGITS_SEVERITY
from ...errors import ConfigError, MissingExtraError
from ...parts.redundancy import redundancy, unit_columns
from ..case import Case, open_data
from .setting import OnBatch, Setting, correct, finite

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

    Each severity is one stream over all corruptions, with new adapters. Accuracy is that of the
    predictions made on the way; NRS that of each batch under the model as adapted by then, this
    batch included. Severity 0 is the clean data.
    """
    if not corruptions or not severities:
        raise ConfigError("an empty list of corruptions or severities; give at least one of each")
    clean = clean_data(setting.data)
    levels = [] if clean is None else [(0.0, clean)]
    for severity in sorted(set(severities)):
        levels.append((float(severity), shifted_data(setting.data, corruptions, severity)))
    case = setting.case(levels[0][1])
    case.loaded = case.net  # once for all severities
    cases = [case]
    for _, data in levels[1:]:
        cases.append(replace(case, dataset=open_data(data, setting.folder or setting.root)))
        cases[-1].check()
    points: list[dict[str, Any]] = []
    features = 0
    for number, (severity, _) in enumerate(levels):

        def progress(done: int, total: int, before: int = number) -> None:
            if on_batch is not None:
                on_batch(before * total + done, len(levels) * total)

        found, features = _measure(setting, cases[number], progress)
        points += [{"severity": severity, **point} for point in found]
    return {
        **setting.about("redundancy", "Redundancy under shift", case),
        "corruptions": list(corruptions),
        "features": features,  # d
        "points": points,
        "relation": None if clean is None else _relation(setting, cases[0], cases[-1]),
    }


def clean_data(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """The same images without a corruption; None where the data set has none."""
    name = check_name(str(data["name"]))
    if name not in CLEAN:
        return None
    return {**_unshifted(data), **({"corruption": None} if name == "digits" else {})}


def shifted_data(
    data: Mapping[str, Any], corruptions: Sequence[str], severity: float
) -> dict[str, Any]:
    """The data under some corruptions at one severity."""
    name = check_name(str(data["name"]))
    shift: dict[str, Any] = {"corruption": list(corruptions), "severity": severity}
    if name == "digits":  # each with the constants that the digits are shifted by
        shift["severity"] = {c: [severity, _digits_constants(c)] for c in corruptions}
    elif name not in CLEAN:
        if not {"domains", "severity"} <= set(dataset_options(name)):
            raise ConfigError(f"{name} has no severities; take one of {', '.join(CLEAN)}")
        shift = {"domains": list(corruptions), "severity": severity}
    return {**_unshifted(data), **shift}


def _unshifted(data: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in data.items() if k not in ("corruption", "severity")}


def _digits_constants(corruption: str) -> str | None:
    severity = DIGITS_SEVERITY.get(corruption)
    return severity[1] if isinstance(severity, tuple) else None


def _measure(setting: Setting, case: Case, on_batch: OnBatch) -> tuple[list[dict[str, Any]], int]:
    """One point per corruption and method, and the number of features."""
    adapters = setting.adapters(case)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    d = 0
    for item, steps in setting.steps(case, adapters, on_batch):
        assert item.domains is not None
        names = np.array([case.data.domains[i].corruption or "clean" for i in item.domains])
        for method, step in steps.items():
            right = correct(item, step).numpy()
            z, _ = adapters[method].features(item.x)
            d = z.shape[1]
            for name in dict.fromkeys(names.tolist()):
                start = {"images": 0, "right": 0, "scores": {}}
                point = found.setdefault((name, method), start)
                point["images"] += int((names == name).sum())
                point["right"] += int(right[names == name].sum())
                if (names == name).all():
                    scores = point["scores"].setdefault(len(names), [])
                    scores.append(float(redundancy(z, normalized=True)))
    points = []
    for (name, method), point in found.items():
        # NRS depends on the size of a batch (few images look alike): full batches only
        scores = point["scores"].get(max(point["scores"], default=0))
        values = {
            "images": point["images"],
            "accuracy": point["right"] / point["images"],
            "nrs": finite(float(np.mean(scores)), 9) if scores else None,
        }
        points.append({"corruption": name, "method": method, **values})
    return points, d


def means(content: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Per method, one row per severity: NRS and accuracy, averaged over the corruptions; NRS over
    those that have one."""
    import pandas as pd

    points = pd.DataFrame(content["points"]).astype({"nrs": float})
    table: Any = points.groupby(["method", "severity"])[["nrs", "accuracy"]].mean()
    table = table.astype(object).where(table.notna(), None).reset_index()
    return {
        method: table[table["method"] == method].drop(columns="method").to_dict("records")
        for method in content["methods"]
    }


# ---- the relation graph ------------------------------------------------------------------------


def _relation(setting: Setting, clean: Case, shifted: Case) -> dict[str, Any]:
    """|Z̃ᵀZ̃| of the source model on clean images and on those of the first corruption."""
    features = [_features(setting, case) for case in (clean, shifted)]
    d = features[0].shape[1]
    chosen = np.arange(d)
    if d > FEATURES:
        random = np.random.default_rng(setting.seed)
        chosen = np.sort(random.choice(d, FEATURES, replace=False))
    graphs = [_graph(z)[np.ix_(chosen, chosen)] for z in features]
    order = _clustered(graphs[0])
    before, after = (np.round(graph[np.ix_(order, order)], 3).tolist() for graph in graphs)
    domain = shifted.data.domains[0]
    return {
        "features": chosen[order].tolist(),
        "of": d,
        "clean": before,
        "shifted": after,
        "images": [len(z) for z in features],
        "nrs": [float(redundancy(z, normalized=True)) for z in features],
        "target": {"corruption": domain.corruption, "severity": domain.severity},
    }


def _features(setting: Setting, case: Case) -> Tensor:
    """Of the source model, for all images of the first domain, (n, d)."""
    first = replace(case, dataset=case.data.only([case.data.domains[0].name]))
    source = case.adapter("source")
    items = first.items(setting.stream(first))
    return torch.cat([source.features(item.x)[0].float().cpu() for item in items])


def _graph(z: Tensor) -> NDArray[np.float64]:
    unit = unit_columns(z.double())
    graph: NDArray[np.float64] = (unit.T @ unit).abs().numpy()
    return graph


def _clustered(graph: NDArray[np.float64]) -> NDArray[np.int64]:
    """Features that resemble each other side by side: leaves of average linkage."""
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
