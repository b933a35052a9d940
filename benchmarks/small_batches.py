"""Why batches of fewer than 16 images are warned of: accuracy against the batch size.

    python benchmarks/small_batches.py [--data FOLDER] [--images 64]

Digits of the package; with --data also CIFAR-10-C and PACS art_painting (weights/ of that folder).
Default settings, one continual pass, severity 5, beside the same images without any shift.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from common import accuracy, arguments, open_benchmark

from fretta.experiment.case import Case

SIZES = (1, 2, 4, 8, 16, 32, 64)
METHODS: dict[str, dict[str, float]] = {"bn": {}, "bn alpha=0.25": {"alpha": 0.25}, "g-fret": {}}


def cases(root: str | None) -> Iterator[tuple[str, Case]]:
    yield "digits", open_benchmark("digits")
    if root is None:
        return
    yield "CIFAR-10-C", open_benchmark("cifar10", root, corruption="all", severity=5)
    yield "CIFAR-10 clean", open_benchmark("cifar10", root)
    pacs = open_benchmark("pacs", root)
    yield "PACS art_painting", replace(pacs, dataset=pacs.data.only("art_painting"))


def main() -> None:
    parser = arguments(__doc__, images=64)
    parser.add_argument("--data", help="folder with CIFAR-10 and PACS")
    options = parser.parse_args()
    warnings.simplefilter("ignore")

    def percent(case: Case, method: str, size: int, settings: dict[str, Any]) -> float:
        limit = options.images if len(case.data.domains) > 1 else 8 * options.images
        stream = case.stream("continual", seed=0, batch_size=size, limit=limit)
        return 100 * accuracy(case, case.adapter(method, **settings), stream)

    print(f"{'':30}" + "".join(f"{size:>7}" for size in SIZES), flush=True)
    for name, case in cases(options.data):
        print(f"{name:22} source {percent(case, 'source', 64, {}):7.1f}", flush=True)
        for label, settings in METHODS.items():
            print(f"{label:>30}", end="")
            for size in SIZES:
                print(f"{percent(case, label.split()[0], size, settings):7.1f}", end="", flush=True)
            print()


if __name__ == "__main__":
    main()
