"""A small store with numbers that can be worked out on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from synthetic import record

from fretta.experiment.records import Record
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
    made = record(
        label,
        seed,
        suite=suite,
        case=case,
        method=method or label,
        accuracy={domain: n / 100 for domain, n in zip(DOMAINS, right, strict=True)},
        hyperparameters=hyperparameters,
        seconds=0.1 if label == "source" else 0.3,
        images=100,
        weights=case,
    )
    store.put(made, _details(right) if details else None)
    return made


def _details(right: tuple[int, int]) -> dict[str, Any]:
    domains = [
        {
            "domain": domain,
            "class_seen": [0, 100, 0],
            "class_right": [0, n, 0],
            "class_predicted": [100 - n, n, 0],  # images of class 1 taken for class 0
            "bin_count": [0, 50, 50],
            "bin_confidence": [0.0, 25.0, 45.0],
            "bin_right": [0, n // 2, n - n // 2],
        }
        for domain, n in zip(DOMAINS, right, strict=True)
    ]
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
    lower = {"source": 0.0, "bn": 0.05, "s-fret": 0.06}
    shifts = [(0.0, "clean", 0.0)]
    shifts += [(s, c, extra) for s in (1.0, 5.0) for c, extra in (("fog", 0.0), ("snow", 0.02))]
    points = [
        {
            "severity": s,
            "corruption": c,
            "method": m,
            "images": 100,
            "accuracy": 0.9 - 0.1 * s,
            "nrs": 0.5 + 0.02 * s + extra - lower[m],
        }
        for s, c, extra in shifts
        for m in lower
    ]
    relation = {
        "features": [2, 0, 1],
        "of": 3,
        "clean": [[1.0, 0.5, 0.1], [0.5, 1.0, 0.9], [0.1, 0.9, 1.0]],
        "shifted": [[1.0] * 3] * 3,
        "images": [100, 100],
        "nrs": [0.5, 1.0],
        "target": {"corruption": "fog", "severity": 5.0},
    }
    more = {"corruptions": ["fog", "snow"], "features": 3, "points": points, "relation": relation}
    return about("redundancy", list(lower)) | more


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
