"""A small store with numbers that can be worked out on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fretta.experiment.records import Record, Run
from fretta.experiment.store import Store
from fretta.report.data import ReportData

DOMAINS = ("fog", "snow")
HOSTILE = '<script>alert("1")</script> $x$ & \x07'


def put(
    store: Store,
    label: str,
    right: tuple[int, int],
    *,
    method: str | None = None,
    seed: int = 0,
    suite: str = "s",
    case: str = "c",
    details: bool = True,
    **hyperparameters: Any,
) -> Record:
    """A run over two domains, two batches of 50 images each, `right` of 100 right in each."""
    name = method or label
    run = Run(
        *({"name": "digits"}, case, {"spec": "digits:resnet8"}, "w", name, hyperparameters),
        *("continual", {}, 50, seed),
    )
    rows = [
        {
            "domain": domain,
            "images": 100,
            "accuracy": n / 100,
            "passes": "1F",
            "nrs_before": 0.6,
            "nrs_after": 0.6 if name == "source" else 0.5,
        }
        for domain, n in zip(DOMAINS, right, strict=True)
    ]
    mean = sum(right) / 200
    overall = {
        "mean_over_domains": mean,
        "accuracy": mean,
        "seconds_per_batch": 0.01 if name == "source" else 0.03,
    }
    tags = {"suite": suite, "case": case, "label": label}
    record = Record(vars(run) | {}, run.key, "done", tags, rows, overall)
    store.put(record, _details(right) if details else None)
    return record


def _details(right: tuple[int, int]) -> dict[str, Any]:
    domains = []
    for domain, n in zip(DOMAINS, right, strict=True):
        wrong = 100 - n  # all of them images of class 1, which are taken for class 0
        domains.append(
            {
                "domain": domain,
                "class_seen": [0, 100, 0],
                "class_right": [0, n, 0],
                "class_predicted": [wrong, n, 0],
                "bin_count": [0, 50, 50],
                "bin_confidence": [0.0, 25.0, 45.0],
                "bin_right": [0, n // 2, n - n // 2],
            }
        )
    total = sum(right)
    halves = [n // 2 for n in right]
    return {
        "domains": domains,
        "confusion": [[0, 0, 0], [200 - total, total, 0], [0, 0, 0]],
        "batches": {
            "domain": [DOMAINS[0]] * 2 + [DOMAINS[1]] * 2,
            "images": [50] * 4,
            "right": [halves[0], right[0] - halves[0], halves[1], right[1] - halves[1]],
            "entropy": [0.1] * 4,
            "seconds": [0.01] * 4,
            "pass_rate": [None] * 4,
        },
    }


def about(kind: str, methods: list[str]) -> dict[str, Any]:
    return {
        "kind": kind,
        "title": kind,
        "provenance": {},
        "data": {"name": "digits"},
        "model": {"spec": "digits:resnet8"},
        "methods": methods,
        "order": "continual",
        "batch_size": 50,
        "limit": 100,
    }


def redundancy() -> dict[str, Any]:
    methods = ["source", "bn", "s-fret"]
    lower = {"source": 0.0, "bn": 0.05, "s-fret": 0.06}
    points = [
        {
            "severity": s,
            "corruption": "clean" if s == 0 else c,
            "method": m,
            "images": 100,
            "accuracy": 0.9 - 0.1 * s,
            "nrs": 0.5 + 0.02 * s + extra - lower[m],
        }
        for s in (0.0, 1.0, 5.0)
        for c, extra in ([("clean", 0.0)] if s == 0 else [("fog", 0.0), ("snow", 0.02)])
        for m in methods
    ]
    graph = [[1.0, 0.5, 0.1], [0.5, 1.0, 0.9], [0.1, 0.9, 1.0]]
    relation = {
        "features": [2, 0, 1],
        "of": 3,
        "clean": graph,
        "shifted": [[1.0] * 3] * 3,
        "images": [100, 100],
        "nrs": [0.5, 1.0],
        "target": {"corruption": "fog", "severity": 5.0},
    }
    return {
        **about("redundancy", methods),
        "corruptions": ["fog", "snow"],
        "features": 3,
        "points": points,
        "relation": relation,
    }


def mechanism() -> dict[str, Any]:
    curves = {
        "bn": {"nrs": [0.6, 0.6, 0.5, 0.5], "loss": [None] * 4, "right": [40, 40, 30, 30]},
        "s-fret": {
            "nrs": [0.6, 0.58, 0.46, 0.44],
            "loss": [200.0, 190.0, 180.0, 100.0],
            "right": [40, 40, 35, 35],
        },
    }
    return {
        **about("mechanism", list(curves)),
        "domains": ["fog", "fog", "snow", "snow"],
        "images": [50] * 4,
        "curves": curves,
    }


def tsne() -> dict[str, Any]:
    xy = [[-1.0, 0.0], [-0.9, 0.1], [0.9, 0.0], [1.0, -0.1]]
    panels = [
        {"method": m, "xy": xy, "nrs": 0.5, "accuracy": 0.75, "silhouette": s}
        for m, s in (("source", 0.1), ("g-fret", None))
    ]
    return {
        **about("tsne", ["source", "g-fret"]),
        "domain": "fog",
        "classes": ["zero", "one"],
        "labels": [0, 0, 1, 1],
        "panels": panels,
    }


def full(root: Path) -> ReportData:
    """Every kind of figure."""
    store = Store(root)
    put(store, "source", (40, 60))
    put(store, "source", (40, 60), seed=1)
    put(store, "g-fret", (80, 90))
    put(store, "g-fret", (84, 90), seed=1)
    put(store, "tent", (30, 90))
    for lam in (0.01, 1.0):
        for lr in (1e-4, 1e-3):
            right = (80, 90) if lam == 1.0 else (60, 70 + int(lr * 1e4))
            label = f"g-fret lam={lam:g} lr={lr:g}"
            put(store, label, right, method="g-fret", suite="grid", lam=lam, lr=lr)
    store.put_analysis("redundancy-digits", redundancy())
    store.put_analysis("mechanism-digits", mechanism())
    store.put_analysis("tsne-digits", tsne())
    return ReportData.read(store)
