"""What analyses measure, against the same numbers taken another way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fretta
from fretta.data import Preprocessing, make_stream, open_dataset
from fretta.errors import FrettaError, ModelError
from fretta.experiment.analysis import Setting, mechanism, redundancy_under_shift, tsne
from fretta.experiment.analysis.mechanism import Losses
from fretta.experiment.analysis.redundancy import _clustered, means, shifted_data
from fretta.experiment.analysis.tsne import embed, rotated, separation
from fretta.experiment.case import open_data
from fretta.report.figures.analyses import severity_by_method

SMALL = Setting(limit=40, batch_size=16, methods=("source", "bn", "s-fret"))
FOG = {"name": "digits", "corruption": "fog", "severity": 3}


def naive_nrs(z: torch.Tensor) -> float:
    """Equation 1, feature by feature."""
    columns = [c / c.norm() if c.norm() > 0 else c for c in z.double().T]
    d = len(columns)
    total = sum(
        abs(float(a @ b)) for i, a in enumerate(columns) for j, b in enumerate(columns) if i != j
    )
    return total / (d * (d - 1))


def batches(**options: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    _, card = fretta.models.load_source("digits")
    preprocessing = Preprocessing.from_json(card.preprocessing)
    stream = make_stream(open_dataset("digits", **options), batch_size=16, limit=40)
    return [(preprocessing.apply(b.x), b.y) for b in stream]


# ---- losses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tent", "s-fret", "g-fret", "sar", "bn"])
def test_losses_are_seen_and_change_nothing(name: str) -> None:
    model, _ = fretta.models.load_source("digits")
    seen, unseen = fretta.adapt(model, name), fretta.adapt(model, name)
    for x, _ in batches(corruption="fog", severity=3):
        with Losses() as losses:
            logits = seen(x)
        assert torch.equal(logits, unseen(x))
        assert len(losses.values) == (0 if name == "bn" else 1)
        assert np.isfinite(losses.values).all()


# ---- redundancy --------------------------------------------------------------------------------


def test_points_are_those_of_the_plain_adapter() -> None:
    found = redundancy_under_shift(SMALL, ["fog"], [3])
    model, _ = fretta.models.load_source("digits")
    adapter = fretta.adapt(model, "s-fret")
    right, scores = 0, []
    for x, y in batches(corruption="fog", severity=3):
        right += int((adapter(x).argmax(1) == y).sum())
        scores.append(naive_nrs(adapter.features(x)[0]))
    (point,) = [p for p in found["points"] if p["method"] == "s-fret" and p["severity"] == 3]
    assert point["images"] == 40
    assert point["accuracy"] == right / 40
    # batches of 16, 16 and 8: only full ones are comparable
    assert point["nrs"] == pytest.approx(np.mean(scores[:2]), rel=1e-5)


def test_clean_data_is_severity_0_and_means_are_over_corruptions() -> None:
    found = redundancy_under_shift(replace(SMALL, methods=["source"]), ["fog", "contrast"], [5, 1])
    assert [(p["severity"], p["corruption"]) for p in found["points"]] == [
        *((0.0, "clean"), (1.0, "fog"), (1.0, "contrast"), (5.0, "fog"), (5.0, "contrast"))
    ]
    table = means(found)["source"]
    assert [row["severity"] for row in table] == [0.0, 1.0, 5.0]
    pair = [p["nrs"] for p in found["points"] if p["severity"] == 5]
    assert table[-1]["nrs"] == pytest.approx(sum(pair) / 2)
    assert table[0]["accuracy"] > table[-1]["accuracy"] + 0.3  # the shift is real


def test_digits_are_corrupted_with_their_own_constants() -> None:
    """At the severity of the suite, an image is the one of the suite."""
    ours = open_data(shifted_data(SMALL.data, ["defocus_blur", "fog"], 3), None)
    suite = open_dataset("digits").only(["defocus_blur", "fog"])
    for a, b in zip(ours.domains, suite.domains, strict=True):
        assert np.array_equal(a.read(np.arange(3)), b.read(np.arange(3)))


def test_the_relation_graph() -> None:
    found = redundancy_under_shift(replace(SMALL, methods=["source"]), ["fog"], [5])["relation"]
    graph = np.array(found["clean"])
    assert sorted(found["features"]) == list(range(found["of"]))
    assert np.allclose(graph, graph.T)
    assert graph.min() >= 0
    off = graph[~np.eye(found["of"], dtype=bool)]
    assert off.mean() == pytest.approx(found["nrs"][0], abs=1e-3)
    assert found["target"] == {"corruption": "fog", "severity": 5}
    alike = np.eye(4)  # features that are alike stand side by side
    for a, b in ((0, 2), (1, 3)):
        alike[a, b] = alike[b, a] = 0.9
    order = _clustered(alike).tolist()
    assert abs(order.index(0) - order.index(2)) == abs(order.index(1) - order.index(3)) == 1


# ---- mechanism ---------------------------------------------------------------------------------


def test_the_loss_of_s_fret_is_the_redundancy_of_its_batch() -> None:
    data = {"name": "digits", "corruption": ["fog", "snow"], "severity": 3}
    found = mechanism(replace(SMALL, data=data))
    curve, d = found["curves"]["s-fret"], 64
    assert found["domains"] == ["fog"] * 3 + ["snow"] * 3
    assert found["images"] == [16, 16, 8] * 2
    assert curve["loss"] == pytest.approx([n * d * (d - 1) for n in curve["nrs"]], rel=1e-4)
    assert found["curves"]["bn"]["loss"] == [None] * 6
    # the first batch is the same for all that use its statistics; then learning makes a difference
    nrs = {m: c["nrs"] for m, c in found["curves"].items()}
    assert nrs["s-fret"][0] == nrs["bn"][0] != nrs["source"][0]
    assert nrs["s-fret"][-1] < nrs["bn"][-1]


def test_hyperparameters_and_divergence(recwarn: pytest.WarningsRecorder) -> None:
    still = mechanism(replace(SMALL, data=FOG, hyperparameters={"lr": 0.0}))["curves"]
    assert still["s-fret"]["nrs"] == still["bn"]["nrs"]
    wild = replace(SMALL, data=FOG, methods=["tent"], hyperparameters={"lr": 3e38})
    curve = mechanism(wild)["curves"]["tent"]
    assert curve["nrs"][0] is not None
    assert curve["loss"][-1] is None
    with pytest.raises(ModelError, match="not finite"):
        tsne(wild, images=20)


# ---- t-SNE -------------------------------------------------------------------------------------


def test_tsne_of_the_same_images() -> None:
    data = {"name": "digits", "corruption": ["fog", "contrast"], "severity": 3}
    setting = replace(SMALL, data=data, methods=["source", "bn"])
    found = tsne(setting, "contrast", images=30)
    assert found["domain"] == "contrast"
    assert len(found["labels"]) == 30
    for panel in found["panels"]:
        xy = np.array(panel["xy"])
        assert xy.shape == (30, 2)
        assert np.abs(xy).max() == pytest.approx(1, abs=1e-3)
        assert -1 <= panel["silhouette"] <= 1
    assert tsne(setting, "contrast", images=30)["panels"] == found["panels"]


def test_rotation_and_separation() -> None:
    flat = embed(np.random.default_rng(0).normal(size=(30, 5)), seed=0)
    mirror = np.array([[0.6, 0.8], [0.8, -0.6]])
    assert rotated(flat @ mirror, flat) == pytest.approx(flat, abs=1e-9)  # turned, not bent
    z = np.array([[1.0, 0], [1, 0.1], [0, 1], [0.1, 1]])
    assert separation(z, np.zeros(4, dtype=int)) is None
    assert (separation(z, np.array([0, 0, 1, 1])) or 0) > 0.8


# ---- what cannot work --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: replace(SMALL, methods=["tnt"]), "unknown method 'tnt'"),
        (lambda: replace(SMALL, methods=[]), "cannot work"),
        (lambda: replace(SMALL, methods=["bn", "bn"]), "each once"),
        (lambda: replace(SMALL, hyperparameters={"lrr": 1}), "has the hyper-parameter lrr"),
        (lambda: redundancy_under_shift(SMALL, [], [1]), "empty list"),
        (lambda: redundancy_under_shift(SMALL, ["fog"], []), "empty list"),
        (lambda: redundancy_under_shift(SMALL, ["smog"], [1]), "unknown corruption 'smog'"),
        (lambda: redundancy_under_shift(SMALL, ["fog"], [9]), "severity"),
        (lambda: tsne(SMALL, images=3), "at least 10"),
    ],
)
def test_what_cannot_work(call: Callable[[], object], message: str) -> None:
    with pytest.raises(FrettaError, match=message):
        call()


@pytest.mark.data
def test_redundancy_grows_with_noise_on_real_images(shared: Path) -> None:
    values = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "size": 32}
    model = {"spec": "cifar:resnet20", "weights": "cifar10_resnet20.safetensors", **values}
    setting = Setting(
        data={"name": "cifar10", "size": 32},
        model={**model, "num_classes": 10},
        methods=["source", "bn"],
        root=str(shared / "data"),
        limit=128,
    )
    rows = means(redundancy_under_shift(setting, ["gaussian_noise"], [1, 3, 5]))
    for method in ("source", "bn"):
        scores = [row["nrs"] for row in rows[method]]
        assert scores == sorted(scores)
    assert all(b["nrs"] < s["nrs"] for s, b in zip(rows["source"], rows["bn"], strict=True))
    assert rows["bn"][-1]["accuracy"] > rows["source"][-1]["accuracy"] + 0.05


def test_accuracy_is_there_where_redundancy_is_not() -> None:
    """A method that diverged, or mixed corruptions: NRS is missing, accuracy counts."""
    points = [
        {"method": "bn", "severity": 5.0, "corruption": "fog", "nrs": 0.2, "accuracy": 0.9},
        {"method": "bn", "severity": 5.0, "corruption": "snow", "nrs": None, "accuracy": 0.1},
        {"method": "bn", "severity": 4.0, "corruption": "snow", "nrs": None, "accuracy": 0.3},
    ]
    content = {"methods": ["bn"], "points": points, "corruptions": ["fog", "snow"]}
    low, high = means(content)["bn"]
    assert (low["nrs"], low["accuracy"]) == (None, pytest.approx(0.3))
    assert (high["nrs"], high["accuracy"]) == (pytest.approx(0.2), pytest.approx(0.5))
    drawn = severity_by_method(content)
    assert drawn.loc[("bn", 5.0), "accuracy"] == pytest.approx(0.5)
