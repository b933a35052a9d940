"""The grid behind docs/performance.md: networks × batch × classes, every method against the floor.

    python benchmarks/steps.py [--only resnet18] [--rounds 5] [--out steps.json]

One network at a time, `fretta bench-steps` does the same. All steps take turns in one process.
"""

from __future__ import annotations

import torch
from common import arguments, write

import fretta
from fretta.experiment.bench import bench
from fretta.models import load

SHORT = ("source", "bn", "tent", "eta", "s-fret", "g-fret", "stein", "auto")
LONG = (*SHORT, "tsd", "sar", "tipi", "tea", "t3a", "lame", "foa-shift", "shot-im", "rdumb", "deyo")
LONG += ("delta", "roid", "cmf", "cotta", "rotta", "note")  # memo takes each image by itself

# name: (model, batch, pixels, classes, methods)
GRID = {
    "resnet18": ("timm:resnet18", 32, 224, 1000, LONG),
    "resnet50": ("timm:resnet50", 16, 224, 1000, SHORT),
    "vit": ("timm:vit_base_patch16_224", 16, 224, 1000, SHORT),
    "cifar-10": ("cifar:resnet18", 128, 32, 10, SHORT),
    "cifar-100": ("cifar:resnet18", 128, 32, 100, SHORT),
    "cifar-1000": ("cifar:resnet18", 128, 32, 1000, SHORT),
    "narrow": ("cifar:resnet20", 128, 32, 10, SHORT),  # d = 64; resnet18 has 512, resnet50 2048
}


# Random weights predict with an entropy that no filter lets pass, all alike: open the filters, so
# that the methods that have some do their whole work.
OPEN: dict[str, dict[str, float]] = {
    "eta": {"e_margin": 2.0, "d_margin": 2.0},
    "sar": {"e_margin": 2.0, "reset_threshold": 0.0},
    "auto": {"e_margin": 2.0},
    "rdumb": {"e_margin": 2.0, "d_margin": 2.0},
    "deyo": {"e_margin": 2.0, "plpd_margin": -1.0},
    "rotta": {"memory": 32, "update_every": 32},  # an update with every batch
    "note": {"memory": 32, "update_every": 32},
}


def main() -> None:
    parser = arguments(__doc__, rounds=5, layout="auto")
    parser.add_argument("--only", choices=GRID, nargs="*", default=list(GRID))
    parser.add_argument("--methods", help="names with commas between")
    options = parser.parse_args()
    results = []
    for name in options.only:
        spec, batch, size, classes, methods = GRID[name]
        chosen = options.methods.split(",") if options.methods else methods
        torch.manual_seed(0)
        net = load(spec, num_classes=classes)
        x = torch.randn(batch, 3, size, size)
        print(f"{name}: {spec}, batch {batch} of {size} px, {classes} classes", flush=True)
        compute = fretta.Compute(layout=options.layout)
        timings = bench(net, x, chosen, options.rounds, compute=compute, settings=OPEN)
        for t in timings:
            own = "" if t.own_ratio is None else f"  own floor {t.own_ratio:.3f}"
            print(
                f"  {t.name:24} {t.milliseconds:9.1f} ms ± {100 * t.spread:3.0f} %"
                f"  x {t.ratio:6.3f}  {t.peak_mib:7.1f} MiB{own}",
                flush=True,
            )
        steps = [t.to_json() for t in timings]
        results.append({"name": name, "model": spec, "batch": batch, "size": size, "steps": steps})
        facts = {"layout": options.layout, "threads": torch.get_num_threads()}
        write(options.out, {**facts, "rounds": options.rounds, "grid": results})


if __name__ == "__main__":
    main()
