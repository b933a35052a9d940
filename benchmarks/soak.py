"""Does a step stay as fast and as small as it was? 20,000 steps of every method, tiny network.

    python benchmarks/soak.py [--steps 20000] [--methods tent,memo] [--guard ,rollback] [--out ...]

Compared are steps of an adapter that has seen everything and of a fresh one that has seen 50
batches, in turns, by the time of the processor: others on the machine do not count. Where a guard
changed its mode (the source model predicts, say), the fresh one goes on until it is in that mode,
up to 1,000 batches; `modes` has both. Memory is the resident set, from step 1,000 to the last.
Networks and settings are those of the campaign (trials/tiny.py): filters let batches pass, so every
method learns. Started again with the same --out, it goes on where it stopped; several may share a
file if their methods differ.
"""

from __future__ import annotations

import json
import statistics
import time
import warnings
from pathlib import Path

import torch
from common import arguments, write
from torch import Tensor
from trials.tiny import images, new_adapter

import fretta
from fretta.experiment.provenance import provenance
from fretta.methods import REGISTRY

WINDOW = 200
FRESH, MOST = 50, 1000  # batches
PAGE = 4096
SIZE = 8  # images of a batch
LR = 1e-4  # noise of 20,000 batches must not make a method diverge


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE


def busy_seconds(adapter: fretta.Adapter, x: Tensor) -> float:
    before = time.thread_time()
    adapter(x)
    return time.thread_time() - before


def begin(method: str, guard: str | None) -> fretta.Adapter:
    given = {"lr": LR} if "lr" in REGISTRY[method].field_names() else {}
    return new_adapter(method, guard=guard, **given)


def mode(adapter: fretta.Adapter) -> str | None:
    """Who predicts, by the guard."""
    supervisor = adapter._supervisor
    return None if adapter.guard is None or supervisor is None else supervisor.mode.value


def soak(method: str, steps: int, guard: str | None = None) -> dict[str, object]:
    batches: list[Tensor] = [images(SIZE, seed) for seed in range(64)]
    old, early_memory = begin(method, guard), 0
    for number in range(steps):
        old(batches[number % 64])
        if number == min(1000, steps // 2):
            early_memory = resident_bytes()
    late_memory = resident_bytes()
    fresh = begin(method, guard)
    for number in range(MOST):
        fresh(batches[number % 64])
        if number >= FRESH - 1 and mode(fresh) == mode(old):
            break
    ratios = []
    for number in range(WINDOW):
        x = batches[number % 64]
        pair = (old, fresh) if number % 2 else (fresh, old)
        spent = {adapter: busy_seconds(adapter, x) for adapter in pair}
        ratios.append(spent[old] / spent[fresh])
    return {
        "method": method,
        "commit": provenance()["commit"],
        "guard": guard,
        "modes": [mode(fresh), mode(old)],
        "steps": steps,
        "late_over_early": round(statistics.median(ratios), 3),
        "memory_growth_mib": round((late_memory - early_memory) / 2**20, 2),
    }


def main() -> None:
    methods = ",".join(fretta.list_methods())
    options = arguments(__doc__, steps=20_000, methods=methods, guard=",rollback").parse_args()
    warnings.simplefilter("ignore", fretta.errors.FrettaWarning)
    torch.set_num_threads(1)
    for guard in options.guard.split(","):
        for method in options.methods.split(","):
            if (method, guard or None) in {(r["method"], r["guard"]) for r in kept(options.out)}:
                continue
            updates = SIZE if method == "memo" else 1  # one for each image of a batch
            found = soak(method, options.steps // updates, guard or None)
            print(json.dumps(found), flush=True)
            results = [*kept(options.out), found]
            results.sort(key=lambda r: (str(r["method"]), str(r["guard"])))
            write(options.out, {"methods": results})


def kept(path: str | None) -> list[dict[str, object]]:
    """What is in the file already; remove it to measure again."""
    if path is None or not Path(path).is_file():
        return []
    found: list[dict[str, object]] = json.loads(Path(path).read_text(encoding="utf-8"))["methods"]
    return found


if __name__ == "__main__":
    main()
