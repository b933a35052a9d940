"""Does a step stay as fast and as small as it was? 10,000 steps of every method on a small network.

    python benchmarks/soak.py [--steps 10000] [--methods tent,g-fret] [--guard rollback] [--out ...]

Compared are the medians of a window of steps early on and of one late in the stream, taken in
turns with a second adapter that is reset for it: the late adapter has seen everything, the fresh
one 50 batches, both run in the same minute of a noisy machine. Memory is the resident set. Started
again with the same --out, it goes on where it stopped.
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
from fretta.methods import REGISTRY

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


def new_adapter(method: str, guard: str | None = None) -> fretta.Adapter:
    needed = Need.SOURCE in REGISTRY[method].needs
    source = [torch.randn(32, 3, 16, 16)] if needed else None
    settings = {"tea": {"sgld_steps": 2}, "memo": {"views": 2}, "cotta": {"views": 2}}
    return fretta.adapt(network(), method, source=source, guard=guard, **settings.get(method, {}))


def soak(method: str, steps: int, guard: str | None = None) -> dict[str, object]:
    generator = torch.Generator().manual_seed(1)
    old = new_adapter(method, guard)
    for _ in range(50):
        old(batch(generator))
    early_memory = None
    for number in range(50, steps):
        old(batch(generator))
        if number == min(1000, steps // 2):
            early_memory = resident_bytes()
    late_memory = resident_bytes()
    fresh = new_adapter(method, guard)
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
        "guard": guard,
        "steps": steps,
        "late_over_early": round(statistics.median(ratios), 3),
        "memory_growth_mib": round((late_memory - (early_memory or late_memory)) / 2**20, 2),
    }


def main() -> None:
    methods = ",".join(fretta.list_methods())
    options = arguments(__doc__, steps=10_000, methods=methods, guard="").parse_args()
    warnings.simplefilter("ignore", fretta.errors.FrettaWarning)
    torch.set_num_threads(1)
    results = kept(options.out)
    done = {(r["method"], r.get("guard")) for r in results}
    for method in options.methods.split(","):
        updates = 32 if method == "memo" else 1  # one for each image of a batch
        for guard in options.guard.split(","):
            if (method, guard or None) in done:
                continue
            results.append(soak(method, options.steps // updates, guard or None))
            print(json.dumps(results[-1]), flush=True)
            results.sort(key=lambda r: str(r["method"]))
            write(options.out, {"methods": results})


def kept(path: str | None) -> list[dict[str, object]]:
    """What an earlier start of this script wrote; remove the file to measure it again."""
    if path is None or not Path(path).is_file():
        return []
    found: list[dict[str, object]] = json.loads(Path(path).read_text(encoding="utf-8"))["methods"]
    return found


if __name__ == "__main__":
    main()
