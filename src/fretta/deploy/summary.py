"""summary.html: the result of a run on one page."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from ..data.listing import shown
from ..estimate.verdict import tests_used
from ..guard.monitor import SHORT
from .output import HEALTH
from .page import chart, class_accuracies, percent, predicted_shares, render
from .result import AdaptResult
from .setup import Setup

POINTS = 240  # per curve, however long the run
EVENTS = 50  # of the guard that are listed
CLASSES = 15  # whose shares are listed
CURVES = {  # caption, unit
    "entropy": ("mean entropy of the predictions", "nats"),
    "marginal_entropy": ("entropy of the mean prediction (dashed: its reference)", "nats"),
    "changed": (f"predictions that are not the source model's, over about {SHORT} images", "%"),
    "nrs": ("redundancy of the features, from 0 to 1", "NRS"),
    "drift": ("distance of the adapted weights from the original ones", "% of their norm"),
    "update_norm": ("size of each update", "L2 norm"),
    "pass_rate": ("images that passed the method's filter", "%"),
}
REFERENCES = {"marginal_entropy": ["reference_marginal"]}


def summary_page(setup: Setup, hyperparameters: dict[str, Any], result: AdaptResult) -> str:
    options, counts, names = setup.options, result.counts, result.class_names
    with (options.out / HEALTH).open(encoding="utf-8") as file:
        health = pd.DataFrame(map(json.loads, file))
    acted = health[health["action"].astype(bool)]
    some = "" if counts.compared == counts.images else f" (of {counts.compared:,} sampled images)"
    return render(
        "summary.html",
        title=f"{options.model} adapted with {options.method}",
        options=options,
        setup=setup,
        result=result,
        counts=counts,
        tiles=_tiles(result, len(acted), len(health)),
        verdict=_verdict(result),
        accuracies=class_accuracies(names, counts.labeled, [counts.source_right, counts.right]),
        events=acted[["batch", "action", "reason"]].values.tolist(),
        batches=len(health),
        sizes=" to ".join(f"{n:,}" for n in sorted({*health["samples"].agg(["min", "max"])})),
        shown=EVENTS,
        charts=_charts(health, (acted.index / max(1, len(health) - 1)).tolist()),
        source_name=f"source model{some}",
        shares=predicted_shares(names, counts.source_predicted, counts.predicted),
        unreadable=[(shown(name), why) for name, why in counts.unreadable_files],
        settings=_settings(setup, hyperparameters),
    )


def _tiles(result: AdaptResult, acted: int, batches: int) -> list[tuple[str, str]]:
    counts = result.counts
    tiles = [("images", f"{counts.images:,}")]
    if result.accuracy is not None:
        tiles.append(("accuracy before", percent(result.source_accuracy)))
        tiles.append(("accuracy after", percent(result.accuracy)))
    compared = f"predictions changed, of {counts.compared:,} compared"
    tiles.append((compared, percent(result.changed)))
    if result.weights is not None:
        tiles.append(("same label from the written weights", percent(result.weights.agreement)))
    tiles.append(("batches the guard acted on", f"{acted:,} / {batches:,}"))
    if counts.unreadable:
        tiles.append(("unreadable", f"{counts.unreadable:,}"))
    return tiles


def _verdict(result: AdaptResult) -> list[str]:
    """The verdict first; where labels are known it is the measured one."""
    counts, measured = result.counts, result.measured
    lines = [line[:1].upper() + line[1:] + "." for line in result.verdict_lines()]
    if not lines:
        return []
    if result.only_source:
        note = f"All of {counts.compared:,} predictions that were compared are the source model's."
    elif measured is not None:
        note = (
            f"Measured on {measured.images:,} images whose folders name their classes: correct"
            f" predictions gained {measured.gained:,}, lost {measured.lost:,}."
            f" {tests_used(measured.level)}"
        )
    else:
        note = (
            f"From {counts.compared:,} images that the source model saw too; an estimate, not a"
            " measurement: label a few hundred images if much depends on it."
        )
    return [*lines, note]


def _charts(health: pd.DataFrame, marks: list[float]) -> list[dict[str, Any]]:
    """Of all that is known; each point is a mean over an equal stretch of the run."""
    n = len(health)
    stretches = np.arange(n) * min(POINTS, n) // n
    charts = []
    for name, (caption, unit) in CURVES.items():
        columns = health[[name, *REFERENCES.get(name, ())]].astype(float).dropna(axis=1, how="all")
        if name in columns:
            means = columns.groupby(stretches).mean() * (100 if unit.startswith("%") else 1)
            curves = [means[column].to_numpy() for column in means]
            charts.append(chart(curves, marks, caption, unit, n))
    return charts


def _settings(setup: Setup, hyperparameters: dict[str, Any]) -> list[tuple[str, object]]:
    options = setup.options
    rows: list[tuple[str, object]] = [
        ("model", setup.case.spec),
        (
            "weights",
            f"{options.weights or options.model} (SHA-256 {setup.case.weights_hash or 'none'})",
        ),
        ("method", options.method),
        ("hyper-parameters", json.dumps(hyperparameters)),
        ("images", setup.case.preprocessing.text()),
        ("order", f"shuffled, seed {options.seed}" if setup.shuffled else "as listed"),
        ("batch size", options.batch_size),
        ("guard", options.guard),
        ("device", setup.case.device),
    ]
    if setup.prior is not None:
        shares = sorted(zip(setup.prior, setup.case.labels.names, strict=True), key=lambda s: -s[0])
        listed = [f"{name} {percent(share)}" for share, name in shares[:CLASSES]]
        more = ["..."] if len(shares) > CLASSES else []
        rows.append(("class shares", ", ".join(listed + more)))
    return rows
