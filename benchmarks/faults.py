"""A campaign of faults, bad input and load: what docs/reliability.md counts.

    python benchmarks/faults.py [--only batches,models,...] [--out faults.json]
    python benchmarks/faults.py --short                        # a minute, as in `make test-slow`

Everything is a function of --seed but the moments at which processes are killed. A trial that
breaks its promise is printed at once; the campaign ends with 1 if any did. With --out the areas
that ran replace what the file says of them.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from common import arguments, write

import fretta
from fretta.experiment.provenance import provenance

AREAS = (
    *("batches", "models", "states", "files", "stores"),
    *("kills", "cluster", "load", "live", "service"),
)


def run(area: str, methods: list[str], seed: int, short: bool) -> dict[str, Any]:
    """Rows and the time they took."""
    begin = time.perf_counter()
    tally = importlib.import_module(f"trials.{area}").trials(methods, seed, short)
    seconds, commit = time.perf_counter() - begin, provenance()["commit"]
    return {"seed": seed, "seconds": seconds, "commit": commit, "rows": tally.table()}


def main() -> None:
    parser = arguments(__doc__, only=",".join(AREAS), methods="", seed=0)
    parser.add_argument("--short", action="store_true", help="few cases of everything")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    methods = options.methods.split(",") if options.methods else fretta.list_methods()
    path = None if options.out is None else Path(options.out)
    areas: dict[str, Any] = {}
    if path is not None and path.exists():
        areas = json.loads(path.read_text(encoding="utf-8"))["areas"]
    failed = 0
    for area in options.only.split(","):
        areas[area] = run(area, methods, options.seed, options.short)
        for row in areas[area]["rows"]:
            failed += row["failed"]
            print(f"{area}: {row['promise']}: {row['tried']} tried, {row['failed']} failed")
        write(path, {"areas": {name: areas[name] for name in AREAS if name in areas}})
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
