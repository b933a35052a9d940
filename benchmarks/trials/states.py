"""Saved states: into other adapters, damaged, from other versions, through safe files."""

from __future__ import annotations

import copy
import io
import random
from typing import Any

import torch
from torch import Tensor

import fretta
from fretta.adapter import STATE_FORMAT
from fretta.errors import NeedError, StateError
from fretta.methods import REGISTRY

from .tally import Tally, hold
from .tiny import NORMS, images, network, new_adapter, same

ELSEWHERE = "a state of another model, method, class count, setting or version: StateError"
DAMAGED = "a damaged state: StateError, or it loads and the adapter predicts"
NOTHING = "after a refused state the adapter equals, bit for bit, one that never saw it"
SAFE = "torch.load(weights_only=True) reads a saved state, and the stream goes on bit for bit"


def started(method: str, norm: str = "batch", batches: int = 2, **more: Any) -> fretta.Adapter:
    adapter = new_adapter(method, norm, **more)
    for number in range(batches):
        adapter(images(6, number))
    return adapter


def refused(tally: Tally, adapter: fretta.Adapter, state: dict[str, Any], case: str) -> None:
    """Loading must raise StateError and change nothing."""
    twin = copy.deepcopy(adapter)
    with tally.trial(ELSEWHERE, case):
        try:
            adapter.load_state_dict(state)
            hold(False, "it was taken")
        except StateError:
            pass
    unchanged(tally, adapter, twin, case)


def unchanged(tally: Tally, adapter: fretta.Adapter, twin: fretta.Adapter, case: str) -> None:
    with tally.trial(NOTHING, case):
        hold(adapter.ready == twin.ready, "ready")
        hold(same(adapter.state_dict(), twin.state_dict()), "another state")
        hold(torch.equal(adapter(images(6, 7)), twin(images(6, 7))), "another prediction")


def elsewhere(tally: Tally, methods: list[str]) -> None:
    for index, method in enumerate(methods):
        state = started(method).state_dict()
        other = methods[(index + 1) % len(methods)]
        for ready in (0, 2):
            refused(tally, started(other, batches=ready), state, f"{method} into {other}")
            for norm in NORMS[1:]:
                if not state["adapted"]:
                    continue  # nothing of the model is in it
                try:
                    target = started(method, norm, batches=ready)
                except NeedError:
                    continue
                refused(tally, target, state, f"{method} into {norm}, {ready} before")
            wider = new_adapter(method, network("batch", classes=7))
            for number in range(ready):
                wider(images(6, number))
            if state["running"] or ready:
                refused(tally, wider, state, f"{method} into 7 classes, {ready} before")
            for format_ in (STATE_FORMAT - 1, STATE_FORMAT + 1, 99, None, "2"):
                changed = {**state, "format": format_}
                refused(tally, started(method, batches=ready), changed, f"{method}: {format_}")
            if "lr" in REGISTRY[method].field_names():
                target = started(method, batches=ready, lr=0.5)
                refused(tally, target, state, f"{method} with another lr, {ready} before")


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [p for k, v in value.items() for p in [(*path, k), *_leaves(v, (*path, k))]]
    if isinstance(value, list):
        return [p for i, v in enumerate(value) for p in _leaves(v, (*path, i))]
    return [path]


def damaged_state(state: dict[str, Any], chance: random.Random) -> tuple[dict[str, Any], str]:
    """A copy with one thing wrong."""
    state = copy.deepcopy(state)
    path = chance.choice([p for p in _leaves(state) if p])
    holder: Any = state
    for step in path[:-1]:
        holder = holder[step]
    old = holder[path[-1]]
    ways = {
        "deleted": None,
        "None": None,
        "a word": "damage",
        "a number": -7,
        "a list": [1, 2, 3],
        "a tensor": torch.zeros(2, 3, 5),
        "nested": {"a": {"b": 1}},
    }
    if isinstance(old, Tensor):
        ways |= {"longer": old.new_zeros((*old.shape, 3)), "flat": old.flatten()[:1]}
        ways |= {"NaN": torch.full_like(old.float(), torch.nan)}
    way = chance.choice(sorted(ways))
    if way == "deleted" and isinstance(holder, dict):
        del holder[path[-1]]
    else:
        holder[path[-1]] = ways[way]
    return state, f"{'/'.join(map(str, path))}: {way}"


def damaged(tally: Tally, methods: list[str], rounds: int, seed: int) -> None:
    for method in methods:
        chance = random.Random(f"{seed}/{method}")
        settings: dict[str, Any]
        for number in range(rounds):
            settings = {"guard": "rollback"} if number % 2 else {}
            state, what = damaged_state(started(method, **settings).state_dict(), chance)
            adapter = started(method, batches=number % 3, **settings)
            twin, case = copy.deepcopy(adapter), f"{method}/{number}: {what}"
            taken = True
            with tally.trial(DAMAGED, case):
                try:
                    adapter.load_state_dict(state)
                except StateError:
                    taken = False
                if taken:
                    hold(adapter(images(6, 7)).shape == (6, 5), "no prediction")
            if not taken:
                unchanged(tally, adapter, twin, case)


def safe_files(tally: Tally, methods: list[str]) -> None:
    for method in methods:
        for settings in ({}, {"guard": "rollback"}, {"guard": "warn"}):
            for norm in NORMS:
                try:
                    adapter, other = (started(method, norm, n, **settings) for n in (2, 0))
                except NeedError:
                    continue
                with tally.trial(SAFE, f"{method}/{norm}/{settings}"):
                    file = io.BytesIO()
                    torch.save(adapter.state_dict(), file)
                    file.seek(0)
                    other.load_state_dict(torch.load(file, weights_only=True))
                    for number in (8, 9):
                        x = images(6, number)
                        hold(torch.equal(adapter(x), other(x)), "another prediction")
                    hold(same(adapter.state_dict(), other.state_dict()), "another state")


def trials(methods: list[str], seed: int, short: bool) -> Tally:
    tally = Tally("states")
    elsewhere(tally, methods[:2] if short else methods)
    damaged(tally, methods, 1 if short else 20, seed)
    safe_files(tally, methods[:2] if short else methods)
    return tally
