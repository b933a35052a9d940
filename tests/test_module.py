"""An adapter is a module among modules: copies, pickles, moves, and what `eval()` does not do."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fretta
from fretta.methods import REGISTRY
from nets import batches, build, same

X, Y, Z = batches(6, 6, 6)
OPTIONS: dict[str, dict[str, Any]] = {"tea": {"sgld_steps": 2}, "tipi": {"std": 1.0}}


def adapted(key: str, **options: Any) -> fretta.Adapter:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = [X] if key == "eata" else None
        adapter = fretta.adapt(
            build("resnet-like"), key, source=source, **OPTIONS.get(key, {}), **options
        )
        adapter(X)
    return adapter


@pytest.mark.filterwarnings("ignore:guard")
@pytest.mark.parametrize("key", sorted(REGISTRY))
def test_copies_pickles_and_moves_go_on_alike(key: str) -> None:
    adapter = adapted(key, guard="rollback")
    twins = [
        copy.deepcopy(adapter),
        pickle.loads(pickle.dumps(adapter)),
        copy.deepcopy(adapter).to("cpu"),
        copy.deepcopy(adapter).double().float(),
    ]
    expected = [adapter(Y), adapter(Z)]
    for twin in twins:
        assert all(torch.equal(twin(x), logits) for x, logits in zip((Y, Z), expected, strict=True))
        assert same(twin.model.adapted, adapter.model.adapted)


@pytest.mark.parametrize("key", ["tent", "eata", "g-fret", "tea", "sar"])
def test_everything_follows_to_another_dtype(key: str) -> None:
    adapter = adapted(key).double()
    assert adapter(Y.double()).dtype is torch.float64
    assert all(t.dtype is torch.float64 for t in adapter.model.origin.values())
    adapter.reset()
    assert same(dict(adapter.model.adapted), adapter.model.origin)


@pytest.mark.parametrize("mode", [True, False])
def test_train_and_eval_do_not_switch_adaptation(mode: bool) -> None:
    one, other = adapted("tent"), adapted("tent")
    one.train(mode)
    assert one.training is mode
    assert torch.equal(one(Y), other(Y))
    assert torch.equal(one(Z), other(Z))


def test_inside_another_module() -> None:
    outer = nn.Sequential(adapted("tent"), nn.Softmax(1)).eval()
    state = outer.state_dict()
    assert set(state) == {f"0.net.{name}" for name in build("resnet-like").state_dict()}
    outer.load_state_dict(state)
    assert outer(Y).sum(1).allclose(torch.ones(6))


def test_reset_every_so_many_batches() -> None:
    every = fretta.adapt(build("resnet-like"), "tent", lr=1e-2, reset_every=2)
    plain = fretta.adapt(build("resnet-like"), "tent", lr=1e-2)

    def pair(adapter: fretta.Adapter) -> list[Tensor]:
        return [adapter(X), adapter(Y)]

    first = pair(every)
    assert same(first, pair(plain))
    state = every.state_dict()
    assert same(first, pair(every))  # began again
    assert not same(first, pair(plain))
    every.load_state_dict(state)  # knows where in its period it was
    assert same(first, pair(every))
