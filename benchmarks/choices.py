"""Choices made once for everybody, measured: optimizer kernels, memory layout, compiled blocks.

    python benchmarks/choices.py              # optimizer and layout
    python benchmarks/choices.py --compile    # torch.compile too (minutes)

One thread; everything that is compared runs in turns in one process. Prints medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn
from written import write

import fretta

NETWORKS = (  # name, pixels, batch
    ("timm:resnet18", 224, 16),
    ("cifar:resnet20", 32, 128),
    ("cifar:resnet18", 32, 32),
    ("timm:tf_efficientnet_lite0", 160, 32),
)


def in_turns(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each, after one warm-up."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            times[name].append(1000 * (time.perf_counter() - start))
    return {name: statistics.median(each) for name, each in times.items()}


def optimizers(rounds: int) -> dict[str, dict[str, float]]:
    results = {}
    whole = fretta.models.load("timm:resnet18")
    norms = [p for m in whole.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters()]
    for title, parameters in (("norm layers", norms), ("all", list(whole.parameters()))):
        works = {}
        for name, how in (("loop", {"foreach": False}), ("foreach", {"foreach": True})):
            works[name] = _adam(parameters, **how)
        works["fused"] = _adam(parameters, fused=True)
        found = in_turns(works, rounds)
        words = ", ".join(f"{name} {ms:.2f} ms" for name, ms in found.items())
        print(f"Adam over {len(parameters)} tensors of a ResNet-18 ({title}): {words}")
        results[title] = {"tensors": len(parameters), **found}
    return results


def _adam(parameters: list[nn.Parameter], **how: bool) -> Callable[[], object]:
    mine = [nn.Parameter(p.detach().clone()) for p in parameters]
    for p in mine:
        p.grad = torch.randn_like(p)
    return torch.optim.Adam(mine, lr=1e-3, **how).step


def layouts(rounds: int) -> dict[str, float]:
    ratios = {}
    for name, pixels, batch in NETWORKS:
        net, x = fretta.models.load(name), torch.randn(batch, 3, pixels, pixels)
        works = {
            layout: _step(fretta.adapt(net, "tent", compute=fretta.Compute(layout=layout)), x)
            for layout in ("contiguous", "channels_last")
        }
        found = in_turns(works, rounds)
        ratio = found["channels_last"] / found["contiguous"]
        print(f"{name} at {pixels}: channels-last {ratio:.2f} of contiguous")
        ratios[f"{name} at {pixels}"] = ratio
    return ratios


def _step(adapter: fretta.Adapter, x: torch.Tensor) -> Callable[[], object]:
    return lambda: adapter(x)


def compiled(rounds: int) -> None:
    net, x = fretta.models.load("cifar:resnet20"), torch.randn(32, 3, 32, 32)
    plain, fast = (
        fretta.adapt(net, "tent"),
        fretta.adapt(net, "tent", compute=fretta.Compute(compile="inductor")),
    )
    start = time.perf_counter()
    fast(x)
    print(f"compiling a ResNet-20: {time.perf_counter() - start:.0f} s")
    found = in_turns({"plain": _step(plain, x), "compiled": _step(fast, x)}, rounds)
    print(f"a compiled step takes {found['compiled'] / found['plain']:.2f} of a plain one")


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--rounds", type=int, default=7)
    ask.add_argument("--compile", action="store_true")
    ask.add_argument("--out", help="write the numbers as JSON")
    given = ask.parse_args()
    torch.set_num_threads(1)
    milliseconds, ratios = optimizers(10 * given.rounds), layouts(given.rounds)
    write(given.out, {"adam_milliseconds": milliseconds, "channels_last": ratios})
    if given.compile:
        compiled(given.rounds)


if __name__ == "__main__":
    main()
