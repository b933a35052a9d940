"""What bfloat16 does to accuracy: the digits stream in float32 and under autocast.

ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 python benchmarks/precision.py [--out precision.json]
"""

from __future__ import annotations

import torch
from common import accuracy, arguments, open_benchmark, write

import fretta


def main() -> None:
    options = arguments(__doc__).parse_args()
    torch.set_num_threads(1)
    found: dict[str, dict[str, float]] = {}
    case = open_benchmark("digits")
    stream = case.stream("continual", seed=0, batch_size=64)
    for method in ("bn", "tent", "g-fret"):
        for precision in (None, "bfloat16"):
            adapter = fretta.adapt(case.net, method, compute=fretta.Compute(precision=precision))
            share, name = accuracy(case, adapter, stream), precision or "float32"
            found.setdefault(method, {})[name] = share
            print(f"{method:8} {name:9} {share:.2%}")
    write(options.out, {"accuracy": found})


if __name__ == "__main__":
    main()
