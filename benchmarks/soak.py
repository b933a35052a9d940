"""Does a step stay as fast and as small as it was? 10,000 steps of every method on a small network.

    python benchmarks/soak.py [--steps 10000] [--methods tent,g-fret] [--out soak.json]

Compared are the medians of a window of steps early on and of one late in the stream, taken in
turns with a second adapter that is reset for it: the late adapter has seen everything, the fresh
one 50 batches, both run in the same minute of a noisy machine. Memory is the resident set.
"""

from __future__ import annotations

import json
import statistics
import warnings
from pathlib import Path

import torch
from common import arguments, seconds, write
from torch import Tensor, nn

import fretta
from fretta.method import Need
from fretta.methods import find_method

WINDOW = 200
PAGE = 4096


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
    )


def batch(generator: torch.Generator) -> Tensor:
    return torch.randn(32, 3, 16, 16, generator=generator)


def new_adapter(method: str) -> fretta.Adapter:
    wants = Need.SOURCE in find_method(method).needs
    source = [torch.randn(32, 3, 16, 16)] if wants else None
    settings = {"tea": {"sgld_steps": 2}, "memo": {"views": 2}}.get(method, {})
    return fretta.adapt(network(), method, source=source, **settings)


def soak(method: str, steps: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(1)
    old = new_adapter(method)
    for _ in range(50):
        old(batch(generator))
    early_memory = None
    for number in range(50, steps):
        old(batch(generator))
        if number == min(1000, steps // 2):
            early_memory = resident_bytes()
    late_memory = resident_bytes()
    fresh = new_adapter(method)
    for _ in range(50):
        fresh(batch(generator))
    ratios = []
    for number in range(WINDOW):
        x = batch(generator)
        pair = (old, fresh) if number % 2 else (fresh, old)
        spent = {adapter: seconds(adapter, x) for adapter in pair}
        ratios.append(spent[old] / spent[fresh])
    return {
        "method": method,
        "steps": steps,
        "late_over_early": round(statistics.median(ratios), 3),
        "memory_growth_mib": round((late_memory - (early_memory or late_memory)) / 2**20, 2),
    }


def main() -> None:
    methods = ",".join(fretta.list_methods())
    options = arguments(__doc__, steps=10_000, methods=methods).parse_args()
    warnings.simplefilter("ignore", fretta.errors.FrettaWarning)
    torch.set_num_threads(1)
    results = []
    for method in options.methods.split(","):
        updates = 32 if method == "memo" else 1  # one for each image of a batch
        results.append(soak(method, options.steps // updates))
        print(json.dumps(results[-1]), flush=True)
    write(options.out, {"methods": results})


if __name__ == "__main__":
    main()
