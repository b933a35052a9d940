"""Load: many adapters in one process; long streams with and without guard (benchmarks/soak.py)."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import torch

import fretta

from .tally import Tally, hold
from .tiny import images, new_adapter

MANY = "200 adapters in one process, in turns: each predicts what it predicts alone"
GONE = "adapters that are gone leave no tensor behind"
FLAT = "20,000 steps of a method: a late one takes as long as an early one, memory stays"
NUMBER, ROUNDS = 200, 3
GROWTH, SLOWER = 4.0, 1.1  # MiB that a resident set may wander; times the step of a fresh adapter
SOAK = Path(__file__).resolve().parents[2] / "evidence" / "benchmarks" / "soak.json"


def many(tally: Tally, methods: list[str], number: int) -> None:
    keys = [methods[i % len(methods)] for i in range(number)]
    adapters = [new_adapter(key) for key in keys]
    together = [
        [adapter(images(6, 10 * i + turn)) for i, adapter in enumerate(adapters)]
        for turn in range(ROUNDS)
    ]
    for i, key in enumerate(keys):
        with tally.trial(MANY, f"{i}: {key}"):
            alone = new_adapter(key)
            for turn in range(ROUNDS):
                x = images(6, 10 * i + turn)
                hold(torch.equal(alone(x), together[turn][i]), "another prediction")


def freed(tally: Tally, methods: list[str], number: int) -> None:
    """Tensors that are left when adapters are gone."""

    def tensors() -> int:
        gc.collect()
        return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())

    for method in methods:
        with tally.trial(GONE, method):
            new_adapter(method)(images(6, 0))  # what a method keeps for all of them
            before = tensors()
            adapters: list[fretta.Adapter] = []
            for i in range(max(2, number // len(methods))):
                adapters.append(new_adapter(method))
                adapters[-1](images(6, i))
            del adapters
            hold(tensors() <= before, f"{tensors() - before} tensors are left")


def soaked(tally: Tally) -> None:
    """What benchmarks/soak.py measured: it takes an hour."""
    for row in json.loads(SOAK.read_text(encoding="utf-8"))["methods"]:
        with tally.trial(FLAT, f"{row['method']}, guard {row['guard']}"):
            hold(row["late_over_early"] <= SLOWER, f"{row['late_over_early']} times as long")
            hold(row["memory_growth_mib"] <= GROWTH, f"{row['memory_growth_mib']} MiB more")


def trials(methods: list[str], seed: int, short: bool) -> Tally:
    tally = Tally("load")
    many(tally, methods, 26 if short else NUMBER)
    freed(tally, methods[:4] if short else methods, 8 if short else NUMBER)
    soaked(tally)
    return tally
