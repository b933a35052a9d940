"""What `keep_memory` saves: steps with and without it, in turns, in one process.

    python benchmarks/memory.py --model timm:tf_efficientnet_lite0 --size 160 --batch-size 128

Prints milliseconds per step and page faults, and the ratio of the medians. One thread.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time

import torch
from written import write

import fretta
from fretta.memory import keep_memory


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--model", default="timm:tf_efficientnet_lite0")
    ask.add_argument("--method", default="tent")
    ask.add_argument("--size", type=int, default=160)
    ask.add_argument("--batch-size", type=int, default=128)
    ask.add_argument("--rounds", type=int, default=5)
    ask.add_argument("--out", help="write the numbers as JSON")
    given = ask.parse_args()
    torch.set_num_threads(1)
    adapter = fretta.adapt(fretta.models.load(given.model), given.method)
    x = torch.randn(given.batch_size, 3, given.size, given.size)
    times: dict[bool, list[float]] = {False: [], True: []}
    faults: dict[bool, list[int]] = {False: [], True: []}
    for _ in range(given.rounds):
        for kept in (False, True):
            if not keep_memory(kept):
                raise SystemExit("this C library has no mallopt, or the environment decides")
            adapter(x)  # the first step after the change still asks the system
            before, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
            adapter(x)
            times[kept].append(1000 * (time.perf_counter() - start))
            faults[kept].append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    results: dict[str, float] = {}
    for kept in (False, True):
        name = "kept" if kept else "returned"
        print(
            f"{name:9} {statistics.median(times[kept]):8.0f} ms"
            f" {statistics.median(faults[kept]):10,.0f} page faults"
        )
        results[f"{name} milliseconds"] = statistics.median(times[kept])
        results[f"{name} faults"] = statistics.median(faults[kept])
    ratio = statistics.median(times[True]) / statistics.median(times[False])
    print(f"{given.model}, {given.method}, {given.batch_size} x {given.size} pixels: {ratio:.2f}")
    facts = {"model": given.model, "method": given.method, "size": given.size}
    write(given.out, {**facts, "batch": given.batch_size, **results, "ratio": ratio})


if __name__ == "__main__":
    main()
