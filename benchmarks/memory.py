"""What `keep_memory` saves: steps with and without it, in turns, in one process.

    python benchmarks/memory.py --model timm:tf_efficientnet_lite0 --size 160 --batch-size 128

Prints milliseconds per step and page faults, and the ratio of the medians. One thread.
"""

from __future__ import annotations

import resource
import statistics

import torch
from common import arguments, seconds, write

import fretta
from fretta.memory import keep_memory


def main() -> None:
    model = "timm:tf_efficientnet_lite0"
    options = arguments(
        __doc__, model=model, method="tent", size=160, batch_size=128, rounds=5
    ).parse_args()
    torch.set_num_threads(1)
    adapter = fretta.adapt(fretta.models.load(options.model), options.method)
    x = torch.randn(options.batch_size, 3, options.size, options.size)
    times: dict[str, list[float]] = {"returned": [], "kept": []}
    faults: dict[str, list[int]] = {"returned": [], "kept": []}
    for _ in range(options.rounds):
        for name in times:
            if not keep_memory(name == "kept"):
                raise SystemExit("this C library has no mallopt, or the environment decides")
            adapter(x)  # the first step after the change still calls the system
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            times[name].append(1000 * seconds(adapter, x))
            faults[name].append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    results: dict[str, float] = {}
    for name in times:
        results[f"{name} milliseconds"] = statistics.median(times[name])
        results[f"{name} faults"] = statistics.median(faults[name])
        print(
            f"{name:9} {results[f'{name} milliseconds']:8.0f} ms"
            f" {results[f'{name} faults']:10,.0f} page faults"
        )
    ratio = results["kept milliseconds"] / results["returned milliseconds"]
    size, batch = options.size, options.batch_size
    print(f"{options.model}, {options.method}, {batch} x {size} pixels: {ratio:.2f}")
    facts = {"model": options.model, "method": options.method, "size": size, "batch": batch}
    write(options.out, {**facts, **results, "ratio": ratio})


if __name__ == "__main__":
    main()
