"""What streams cost in memory beside the one model: docs/serve.md.

    python benchmarks/serve_memory.py --streams 100 --methods tent,auto

Weights are random and images are small noise: neither changes how many bytes there are.
"""

from __future__ import annotations

import argparse
import json
import resource
import warnings
from pathlib import Path

import torch

from fretta.compat import import_torchvision
from fretta.experiment.case import Case
from fretta.models.preprocessing import Preprocessing
from fretta.serve.host import StreamHost
from fretta.serve.settings import Settings
from fretta.serve.sharing import storages, tensors_of

MIB = 2**20


def total(value: object) -> float:
    """MiB of memory behind all tensors of an object, each byte once."""
    return sum(storages(tensors_of(value)).values()) / MIB


def resident() -> float:
    """MiB of the process (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / MIB


def measure(method: str, guard: str, streams: int, batches: int, size: int) -> dict[str, object]:
    net = import_torchvision().models.resnet50(num_classes=1000)
    case = Case("torchvision:resnet50", Preprocessing(size=size), loaded=net.eval())
    host = StreamHost(Settings("torchvision:resnet50", method=method, guard=guard), case=case)
    row: dict[str, object] = {"method": method, "guard": guard, "model": total(host.source)}
    torch.manual_seed(0)
    for _ in range(batches):
        host.predict("stream-0", torch.randn(2, 3, size, size))
    before = resident()
    together = []
    for _ in range(batches):
        x = torch.randn(2, 3, size, size)
        for stream in range(streams):
            host.predict(f"stream-{stream}", x)
        found = list(host._streams.values())
        together.append(round(total([host.source, host._pool, found]), 1))
    row |= {"shared constants": total(host._pool), "all after each batch": together}
    adapted = sum(p.nbytes for p in found[0].adapter.model.adapted.values()) / MIB
    alone = host.detail("stream-0")["memory_bytes"] / MIB
    row |= {"adapted tensors": adapted, "a stream": alone}
    row["resident"] = resident() - before  # all but the first stream
    return {k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--methods", default="tent,auto")
    parser.add_argument("--guards", default="none,rollback")
    parser.add_argument("--size", type=int, default=64)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for method in given.methods.split(","):
        for guard in given.guards.split(","):
            row = measure(method, guard, given.streams, given.batches, given.size)
            print(json.dumps({"streams": given.streams, **row}), flush=True)


if __name__ == "__main__":
    main()
