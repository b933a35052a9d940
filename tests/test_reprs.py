"""What a user prints says the essentials in one line; help() names the hyper-parameters."""

from __future__ import annotations

import inspect

import pytest

import fretta
from fretta.data import Preprocessing, make_stream, open_dataset
from fretta.experiment.records import Record
from fretta.methods import REGISTRY
from nets import build


def test_one_line_for_what_is_printed() -> None:
    model, card = fretta.models.load_source("digits")
    preprocessing = Preprocessing.from_json(card.preprocessing)
    dataset = open_dataset("digits")
    stream = make_stream(dataset, "continual", seed=3, batch_size=64)
    batch = next(stream.batches())
    guard = fretta.Guard("skip", max_drift=0.25)
    adapter = fretta.adapt(model, "g-fret", guard=guard)
    adapter(preprocessing.apply(batch.x))
    run = {"method": "tent", "data": {"name": "digits"}, "seed": 1}
    record = Record(run, "abc", "done", {}, rows=[{"a": 1}] * 99, overall={"accuracy": 0.914})
    expected = [
        (dataset, ("'digits'", "8,100 images", "10 classes", "15 domain", "gaussian_noise")),
        (dataset.only("fog"), ("540 images", "fog")),
        (stream, ("'digits'", "continual", "seed 3", "8,100 images", "64")),
        (batch, ("Batch 0", "64 images", "3×32×32", "'gaussian_noise'")),
        (adapter, ("'g-fret'", "CifarResNet", "14 adapted tensors")),
        (adapter.health, ("batch 0", "64 images", "entropy", "NRS", "drift")),
        (guard, ("Guard('skip', max_drift=0.25)",)),
        (card, ("digits:resnet8", "10 classes")),
        (record, ("tent", "digits", "seed 1", "done", "91.4%")),
    ]
    for value, facts in expected:
        printed = repr(value)
        assert "\n" not in printed
        assert len(printed) < 200
        for fact in facts:
            assert fact in printed


def test_health_shows_what_the_guard_did() -> None:
    unknown = {"nrs": None, "reference_marginal": None, "changed": None, "pass_rate": None}
    none = {**unknown, "drift": None, "update_norm": None}
    health = fretta.Health(4, 8, entropy=0.5, marginal_entropy=1.25, **none)
    assert "None" not in repr(health)
    acted = fretta.Health(
        4, 8, entropy=0.5, marginal_entropy=1.25, action="reset", reason="too far", **none
    )
    assert "reset: too far" in repr(acted)
    for html in (acted._repr_html_(), fretta.adapt(build("resnet-like"), "tent")._repr_html_()):
        assert html.startswith("<table>")
    assert "too far" in acted._repr_html_()
    assert "0.001" in html  # the learning rate


@pytest.mark.parametrize("key", sorted(REGISTRY))
def test_every_hyper_parameter_is_documented_where_it_is_declared(key: str) -> None:
    for name in REGISTRY[key].field_names():
        home = next(c for c in REGISTRY[key].__mro__ if name in inspect.get_annotations(c))
        doc = str(home.__doc__)
        assert (
            f"\n    {name} " in doc
            or f" {name}:" in doc
            or f"{name}, " in doc
            or f", {name} " in doc
        )


def test_the_signature_of_adapt() -> None:
    names = ["model", "method", "source", "head", "guard", "inplace", "compute", "hyperparameters"]
    assert list(inspect.signature(fretta.adapt).parameters) == names
    assert all(f"\n    {name} " in str(fretta.adapt.__doc__) for name in names[:-1])
