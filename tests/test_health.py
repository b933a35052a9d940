"""Health: numbers one can work out on paper, at no cost to those who do not look."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import fretta
from fretta.errors import ConfigError
from fretta.guard import Health, JsonlWriter, TensorBoardWriter, measure
from fretta.learner import Learner
from fretta.methods import REGISTRY, Source
from nets import Wrapped, batches, build, same, snapshot
from test_conformance import settings

quiet = pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
HEALTH = Health(0, 4, None, 0.5, 1.0, None, 0.25, 1.0, 0.0, 0.1)


def test_numbers_by_hand() -> None:
    logits = torch.tensor([[0.0, 0.0], [100.0, 0.0]])
    now, before, origin = torch.tensor([3.0, 4.0]), torch.tensor([3.0, 3.0]), torch.tensor([0.0, 4])
    features = torch.tensor([[1.0, 2.0], [1.0, 2.0]])  # two columns that say the same
    vectors = {"now": now, "before": before, "origin": origin}
    n, mean = measure(logits, Source(), 0, features=features, **vectors)
    assert n.entropy == pytest.approx(math.log(2) / 2)
    assert mean.tolist() == pytest.approx([0.75, 0.25])
    assert n.marginal_entropy == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    assert n.nrs == pytest.approx(1.0)
    assert (n.update_norm, n.drift, n.pass_rate) == (1.0, 0.75, None)
    assert n.finite
    assert not measure(logits, Source(), 0, now=now * torch.nan, origin=origin)[0].finite
    assert not measure(logits / 0, Source(), 0)[0].finite
    assert measure(logits, Source(), 0)[0].nrs is None


@quiet
@pytest.mark.parametrize("key", sorted(REGISTRY))
def test_watching_never_changes_results(key: str) -> None:
    seen: list[Health] = []
    plain = fretta.adapt(build("resnet-like"), key, **settings(key))
    watched = fretta.adapt(build("resnet-like"), key, **settings(key))
    watched.on_health(seen.append)
    state = torch.get_rng_state()
    for x in batches(6, 6, 1, 5):
        assert torch.equal(watched(x), plain(x))
    assert torch.equal(torch.get_rng_state(), state)
    assert [(h.batch, h.samples, h.action) for h in seen] == [
        *((0, 6, ""), (1, 6, ""), (2, 1, ""), (3, 5, ""))
    ]
    assert watched.health is seen[-1]
    assert seen[0].nrs is not None
    assert 0 <= seen[0].nrs <= 1
    moves = REGISTRY[key].gradient
    assert (seen[1].update_norm is not None) == moves
    if moves:
        assert (seen[1].drift or 0) > 0
    watched.reset()
    assert watched.health is None
    watched(batches(6)[0])
    assert seen[-1] == seen[0]  # the counter, the references, everything


@quiet
def test_health_is_measured_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    a = fretta.adapt(build("resnet-like"), "g-fret", lr=1e-2)
    assert a.health is None
    with monkeypatch.context() as patch:

        def never(*_: Any, **__: Any) -> None:
            raise RuntimeError("measured too early")

        patch.setattr("fretta.adapter.measure", never)
        patch.setattr(Learner, "source_forward", never)
        for x in batches(6, 6):
            logits = a(x)
        with pytest.raises(RuntimeError, match="too early"):
            _ = a.health
    before = a.state_dict()
    health = a.health
    assert health is not None
    assert health.entropy == pytest.approx(measure(logits, a.method, 0)[0].entropy)
    assert (health.batch, health.samples, health.update_norm) == (1, 6, None)
    assert health.nrs is not None
    assert health.drift is not None
    assert health.drift > 0
    assert same(a.state_dict(), before)


def test_changed_compares_with_the_source_model() -> None:
    seen: list[Health] = []
    a = fretta.adapt(build("vit-like"), "tent", lr=1e-9)
    a.on_health(seen.append)
    for x in batches(32, 32):
        a(x)
    assert seen[-1].changed == 0
    with torch.no_grad():  # turn the features around, and with them most predictions
        a.model.adapted["norm.weight"].mul_(-1)
        a.model.adapted["norm.bias"].mul_(-1)
    for x in batches(64, 64, 64, 64, 64, 64, 64, 64):
        a(x)
    assert (seen[-1].changed or 0) > 0.5
    truth = a.source_logits(x).argmax(1) != a.predict(x).argmax(1)
    assert seen[-1].changed == pytest.approx(float(truth.float().mean()), abs=0.3)


@quiet
@pytest.mark.parametrize("net", ["resnet-like", "vit-like", "nested-bn"])
@pytest.mark.parametrize("key", ["tent", "tsd", "bn"])
def test_source_logits_are_those_of_the_initial_state(net: str, key: str) -> None:
    model = build(net)
    a = fretta.adapt(model, key, compute=fretta.Compute(layout="contiguous"), **settings(key))
    x, y = batches(6, 6)
    a(x), a(y)
    before, inside = a.state_dict(), snapshot(a.model.net)
    with torch.no_grad():
        expected = model.eval()(x)
    assert torch.equal(a.source_logits(x), expected)
    assert same(a.state_dict(), before)
    assert same(snapshot(a.model.net), inside)
    with torch.inference_mode():
        assert torch.equal(a.source_logits(x), expected)
        assert torch.equal(a.source_logits(x[:1]), model(x[:1]))


def test_jsonl_writer_appends_and_is_on_disk_at_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "health.jsonl"
    writer = JsonlWriter(path)
    a = fretta.adapt(Wrapped(lambda y: y * 2.0), "tent")  # without a head: no NRS
    a.on_health(writer)
    for x in batches(6, 6):
        a(x)
    records = [Health(**json.loads(line)) for line in path.read_text().splitlines()]
    assert [(r.batch, r.nrs) for r in records] == [(0, None), (1, None)]
    assert records[-1] == a.health
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="is closed"):
        writer(HEALTH)
    with JsonlWriter(path) as again:
        again(Health(0, 4, None, math.nan, math.inf, None, None, None, None, None))
    last = json.loads(path.read_text().splitlines()[2])
    assert last["entropy"] is last["marginal_entropy"] is None  # JSON has no word for them


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_writer(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with TensorBoardWriter(tmp_path) as writer:
        writer(HEALTH)
        writer(Health(1, 4, None, 0.25, 1.0, None, 0.25, 1.0, 0.0, 0.1, "skip", "why"))
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [e.value for e in events.Scalars("health/entropy")] == [0.5, 0.25]
    assert "health/nrs" not in events.Tags()["scalars"]
    assert events.Tags()["tensors"] == ["health/guard/text_summary"]


def test_a_batch_whose_callback_fails_did_not_happen() -> None:
    """The predictions would be lost, and a second try would learn from it twice."""
    adapter, other = (fretta.adapt(build("resnet-like"), "tent", lr=1e-2) for _ in range(2))
    first, second = batches(6, 6)
    seen: list[int] = []

    def full(health: Health) -> None:
        seen.append(health.batch)
        if len(seen) == 2:
            raise OSError("no space left")

    for a in (adapter, other):
        a.on_health(full if a is adapter else lambda _: None)
        a(first)
    with pytest.raises(OSError, match="no space"):
        adapter(second)
    assert adapter.health == other.health
    assert torch.equal(adapter(second), other(second))
    assert seen == [0, 1, 1]
    with pytest.raises(ConfigError, match="a function of a Health"):
        adapter.on_health(3)  # type: ignore[arg-type]
