"""What a step of every method costs in steps of the source model: the cost column of the README.

    FRETTA_DATA=... python benchmarks/costs.py [--batch-size 64] [--rounds 12] [--out costs.json]

All methods take turns in one process, batch by batch along one stream of CIFAR-10-C, so that a busy
machine slows all of them.
"""

from __future__ import annotations

import os
import statistics
import time
import warnings
from pathlib import Path

import torch
from common import arguments, write
from stream_list import kept_stream, open_plan

from fretta.errors import FrettaWarning
from fretta.methods import REGISTRY

WARM_UP = 2  # batches


def main() -> None:
    parser = arguments(__doc__, batch_size=64, rounds=12)
    options = parser.parse_args()
    warnings.simplefilter("ignore", FrettaWarning)
    torch.set_num_threads(1)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fretta"
    case = open_plan("cifar-128")
    wanted = WARM_UP + options.rounds
    limit = -(-wanted * options.batch_size // len(case.data.domains))
    stream = case.stream("continual", seed=0, batch_size=options.batch_size, limit=limit)
    batches = [item.x for item in case.items(kept_stream(stream, cache / "pixels"))][:wanted]
    adapters = {name: case.adapter(name) for name in REGISTRY}
    seconds: dict[str, list[float]] = {name: [] for name in adapters}
    for x in batches:
        for name, adapter in adapters.items():
            begin = time.process_time()
            adapter(x)
            seconds[name].append(time.process_time() - begin)
    base = seconds["source"][WARM_UP:]
    methods = {}
    for name, values in seconds.items():
        ratios = sorted(a / b for a, b in zip(values[WARM_UP:], base, strict=True))
        quarter = len(ratios) // 4
        methods[name] = {
            "ratio": statistics.median(ratios),
            "quartiles": [ratios[quarter], ratios[-1 - quarter]],
            "milliseconds": 1000 * statistics.median(values[WARM_UP:]),
        }
        print(f"{name:12} {methods[name]['ratio']:7.2f}", flush=True)
    facts = {"model": "cifar:resnet20", "batch": options.batch_size, "rounds": options.rounds}
    write(options.out, {**facts, "threads": 1, "methods": methods})


if __name__ == "__main__":
    main()
