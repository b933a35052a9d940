"""What bfloat16 does to accuracy: the digits stream in float32 and under autocast.

ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 python benchmarks/precision.py [--out precision.json]
"""

from __future__ import annotations

import argparse

import torch
from written import write

import fretta
from fretta.data import Preprocessing, make_stream, open_dataset


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--out", help="write the numbers as JSON")
    given = ask.parse_args()
    torch.set_num_threads(1)
    accuracy: dict[str, dict[str, float]] = {}
    model, card = fretta.models.load_source("digits")
    preprocessing = Preprocessing.from_json(card.preprocessing)
    stream = make_stream(open_dataset("digits"), "continual", seed=0, batch_size=64)
    for method in ("bn", "tent", "g-fret"):
        for precision in (None, "bfloat16"):
            adapter = fretta.adapt(model, method, compute=fretta.Compute(precision=precision))
            hits = sum(
                int(adapter(preprocessing.apply(b.x)).argmax(1).eq(b.y).sum()) for b in stream
            )
            name = precision or "float32"
            accuracy.setdefault(method, {})[name] = hits / stream.samples
            print(f"{method:8} {name:9} {hits / stream.samples:.2%}")
    write(given.out, {"accuracy": accuracy})


if __name__ == "__main__":
    main()
