"""What each part of `auto` is worth, on a few streams of benchmarks/streams.py: docs/auto.md.

    FRETTA_DATA=... python benchmarks/auto_parts.py [--seed 0] [--out auto-parts.json]

CIFAR-10-C and digits alone: the constants of `auto` were chosen on these.
"""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from common import accuracy, arguments, write
from stream_list import PLANS, kept_stream, open_plan

import fretta
from fretta.data import make_stream
from fretta.errors import FrettaWarning
from fretta.parts.adaptive import AdaptiveStatistics

STREAMS = ("digits-64", "cifar-128", "clean-80", "noise-70", "sorted-16", "cifar-lt")
# what it says in the table: method, hyper-parameters, constants of the statistics
PARTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "source": ("source", {}, {}),
    "bn": ("bn", {}, {}),
    "moving statistics": ("source", {"statistics": "moving"}, {}),
    "adaptive statistics": ("stein", {"hedge": False}, {}),
    "… not balanced": ("stein", {"hedge": False}, {"most_classes": 0}),
    "… unevenness is no noise": ("stein", {"hedge": False}, {"bias": 0.0}),
    "stein: adaptive, hedged": ("stein", {}, {}),
    "auto": ("auto", {}, {}),
    "auto, not pulled back": ("auto", {"pull": 0.0}, {}),
    "auto, not hedged": ("auto", {"hedge": False}, {}),
    "auto, budget 0.25": ("auto", {"budget": 0.25}, {}),
    "g-fret, adaptive": ("g-fret", {"statistics": "adaptive"}, {}),
}


def main() -> None:
    parser = arguments(__doc__, seed=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore", FrettaWarning)
    torch.set_num_threads(1)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fretta"
    rows = []
    for name in STREAMS:
        plan, case = PLANS[name], open_plan(name)
        more = plan.order_options(options.seed)
        stream = make_stream(
            case.data, plan.order, seed=options.seed, batch_size=plan.batch_size, **more
        )
        stream = kept_stream(stream, cache / "pixels")
        for part, (method, values, constants) in PARTS.items():
            begin = time.process_time()
            changed = {"shrink": AdaptiveStatistics.shrink, **constants}
            with patch.multiple(AdaptiveStatistics, **changed):
                found = accuracy(case, fretta.adapt(case.net, method, **values), stream)
            seconds = time.process_time() - begin
            print(f"{name:12} {part:34} {100 * found:6.2f} %  {seconds:6.1f} s", flush=True)
            rows.append({"stream": name, "title": plan.title, "part": part, "accuracy": found})
            rows[-1]["seconds"] = seconds
        write(options.out, {"seed": options.seed, "parts": rows})


if __name__ == "__main__":
    main()
