"""What bfloat16 does to accuracy: the digits stream in float32 and under autocast.

ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 python benchmarks/precision.py
"""

from __future__ import annotations

import torch

import fretta
from fretta.streams import Preprocessing, make_stream, open_dataset


def main() -> None:
    torch.set_num_threads(1)
    model, card = fretta.models.load_source("digits")
    preprocessing = Preprocessing.from_json(card.preprocessing)
    stream = make_stream(open_dataset("digits"), "continual", seed=0, batch_size=64)
    for method in ("bn", "tent", "g-fret"):
        for precision in (None, "bfloat16"):
            adapter = fretta.adapt(model, method, precision=precision)
            hits = sum(
                int(adapter(preprocessing.apply(b.x)).argmax(1).eq(b.y).sum()) for b in stream
            )
            print(f"{method:8} {precision or 'float32':9} {hits / stream.samples:.2%}")


if __name__ == "__main__":
    main()
