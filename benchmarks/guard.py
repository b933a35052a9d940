"""Collapse: streams on which adaptation does harm, without and with the guard.

    python benchmarks/guard.py [--seeds 10] [--quick] [--out guard.json]
    FRETTA_DATA=... python benchmarks/guard.py --healthy   # only streams to be left alone
    python benchmarks/guard.py --cost [--out cost.json]    # time of a guarded step

Needs nothing but the package and scikit-learn: corrupted digits and the shipped source model. Five
kinds of streams, each with settings under which the method collapses:

    high lr      shuffled images, batches of 32, a learning rate far too high
    one class    images sorted by class, batches of 16
    batch of 2   shuffled images, two at a time
    noise        images under noise so strong that nothing is left to learn from
    flat         half of every batch is one flat color; only the real images are counted

`stream` is the accuracy over the whole stream, `end` that of the state at its end, by `predict`,
on images of the last corruption that were held out, in the same kind of batches. Worst is over
seeds: the largest loss against the source model, in points.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from common import open_benchmark, write
from torch import Tensor

import fretta
import fretta.guard
from fretta.errors import FrettaWarning

DOMAINS, HELD_OUT = 4, 120


@dataclass(frozen=True)
class Kind:
    """A stream that does harm."""

    name: str
    batch: int
    images: int  # per domain
    order: str = "shuffled"  # or "sorted"
    noise: float = 0.0
    flat: bool = False
    lr: float = 1.0  # times the one below


KINDS = [
    Kind("high lr", 32, 300, lr=1000.0),
    Kind("one class", 16, 300, "sorted", lr=10.0),
    Kind("batch of 2", 2, 150, lr=10.0),
    Kind("noise", 32, 300, noise=3.0, lr=1000.0),
    Kind("flat", 32, 400, flat=True, lr=1000.0),
]
LR = {"tent": 1e-3, "eata": 1e-3, "s-fret": 1e-3, "g-fret": 1e-3}


@dataclass
class World:
    """Corrupted digits, preprocessed, with what the source model predicts."""

    x: Tensor
    y: Tensor
    domain: Tensor
    names: list[str]
    source: list[Tensor]
    model: torch.nn.Module

    @classmethod
    def load(cls) -> World:
        case = open_benchmark("digits")
        items = list(case.items(case.stream(batch_size=256, seed=0)))
        return cls(
            torch.cat([item.x for item in items]),
            torch.cat([item.y for item in items]),
            torch.cat([torch.as_tensor(item.domains) for item in items]),
            case.data.names,
            source_images("digits"),
            case.net,
        )


def source_images(name: str, limit: int | None = None) -> list[Tensor]:
    """Eight batches of 64."""
    case = open_benchmark(name, split="train")
    return [item.x for item in islice(case.items(case.stream(batch_size=64, limit=limit)), 8)]


def rows_of(world: World, kind: Kind, seed: int) -> tuple[Tensor, Tensor]:
    """Rows of the stream, and held-out rows of its last domain."""
    g = torch.Generator().manual_seed(seed)
    domains = torch.randperm(len(world.names), generator=g)[:DOMAINS].tolist()
    stream = []
    for domain in domains:
        rows = (world.domain == domain).nonzero().flatten()
        rows = rows[torch.randperm(len(rows), generator=g)]
        held, rows = rows[:HELD_OUT], rows[HELD_OUT : HELD_OUT + kind.images]
        stream.append(arranged(world, kind, rows, g))
    return torch.cat(stream), arranged(world, kind, held, g)


def arranged(world: World, kind: Kind, rows: Tensor, g: torch.Generator) -> Tensor:
    if kind.order == "shuffled":
        return rows
    return torch.cat([rows[world.y[rows] == c] for c in torch.randperm(10, generator=g)])


def batches(world: World, kind: Kind, rows: Tensor, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(images, labels); the label of a flat image is -1."""
    g = torch.Generator().manual_seed(1000 + seed)
    for part in rows.split(kind.batch // 2 if kind.flat else kind.batch):
        x, y = world.x[part], world.y[part]
        if kind.noise:
            x = x + kind.noise * torch.randn(x.shape, generator=g)
        if kind.flat:
            color = 3 * torch.randn(1, x.shape[1], 1, 1, generator=g)
            x = torch.cat([x, color.expand_as(x)])
            y = torch.cat([y, torch.full_like(y, -1)])
        yield x, y


def share_right(pairs: list[tuple[Tensor, Tensor]]) -> float:
    right = sum(int((logits.argmax(1) == y).sum()) for logits, y in pairs)
    return 100 * right / sum(int((y >= 0).sum()) for _, y in pairs)


def run(world: World, kind: Kind, method: str, seed: int, guard: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if method != "source":
        options["lr"] = LR[method] * kind.lr
    if method == "eata":
        options["source"] = world.source
    adapter = fretta.adapt(world.model, method, guard=guard, **options)
    stream, held = rows_of(world, kind, seed)
    log, acted, total = [], 0, 0
    for x, y in batches(world, kind, stream, seed):
        log.append((adapter(x), y))
        total += 1
        acted += bool(guard and adapter.health and adapter.health.action)
    end = [(adapter.predict(x), y) for x, y in batches(world, kind, held, seed + 500)]
    return {
        "stream": share_right(log),
        "end": share_right(end),
        "acted": acted,
        "batches": total,
        "safe": adapter.safe,
    }


def laboratory(
    world: World, seeds: range, kinds: list[Kind], methods: list[str], policy: str
) -> list[dict[str, Any]]:
    rows = []
    for kind in kinds:
        source = [run(world, kind, "source", seed, None) for seed in seeds]
        for method in methods:
            row: dict[str, Any] = {"stream": kind.name, "method": method}
            for label, guard in (("without", None), (policy, policy)):
                results = [run(world, kind, method, seed, guard) for seed in seeds]
                for part in ("stream", "end"):
                    loss = [r[part] - s[part] for r, s in zip(results, source, strict=True)]
                    row[f"{label} {part}"] = sum(r[part] for r in results) / len(seeds)
                    row[f"{label} {part} worst"] = min(loss)
                row[f"{label} acted"] = sum(r["acted"] for r in results)
                row[f"{label} batches"] = sum(r["batches"] for r in results)
            for part in ("stream", "end"):
                row[f"source {part}"] = sum(s[part] for s in source) / len(seeds)
            rows.append(row)
            show_row(row, policy)
    return rows


def show_row(row: dict[str, Any], policy: str) -> None:
    def cell(label: str) -> str:
        return "  ".join(
            f"{row[f'{label} {p}']:5.1f} ({row[f'{label} {p} worst']:+6.1f})"
            for p in ("stream", "end")
        )

    print(
        f"{row['stream']:11} {row['method']:7} {row['source stream']:5.1f} {row['source end']:5.1f}"
        f" | {cell('without')} | {cell(policy)} | {row[f'{policy} acted']}/"
        f"{row[f'{policy} batches']}",
        flush=True,
    )


# ---- streams to be left alone -------------------------------------------------------------------


def healthy(
    name: str,
    model: Any,
    stream: list[tuple[Tensor, Tensor]],
    source: list[Tensor],
    policy: str,
    methods: Sequence[str],
) -> list[dict[str, Any]]:
    rows = []
    for method in methods:
        row: dict[str, Any] = {"stream": name, "method": method}
        options = {"source": source} if method == "eata" else {}
        for label, guard in (("without", None), (policy, policy)):
            adapter = fretta.adapt(model, method, guard=guard, **options)
            log, acted = [], []
            for x, y in stream:
                log.append((adapter(x), y))
                if guard and adapter.health and adapter.health.action:
                    acted.append(adapter.health.reason)
            row[label] = share_right(log)
            row["acted"], row["batches"] = len(acted), len(stream)
            row["reasons"] = sorted(set(acted))
        print(
            f"{name:12} {method:7} {row['without']:6.2f} {row[policy]:6.2f}"
            f" ({row[policy] - row['without']:+.2f})  {row['acted']}/{row['batches']}"
            f" {'; '.join(row['reasons'])}",
            flush=True,
        )
        rows.append(row)
    return rows


def digits_stream(
    world: World, batch: int, seed: int, domains: list[int] | None = None
) -> list[tuple[Tensor, Tensor]]:
    g = torch.Generator().manual_seed(seed)
    out = []
    for domain in range(len(world.names)) if domains is None else domains:
        rows = (world.domain == domain).nonzero().flatten()
        rows = rows[torch.randperm(len(rows), generator=g)]
        out += [(world.x[part], world.y[part]) for part in rows.split(batch)]
    return out


def watched(net: torch.nn.Module, method: str) -> fretta.Adapter:
    adapter = fretta.adapt(net, method)
    adapter.on_health(lambda _: None)
    return adapter


def cost(batches: int = 32) -> dict[str, float]:
    """Time of a step with the guard and with callbacks against one without, healthy path.

    Processor time of interleaved steps in one process, one thread: timm resnet18 with random
    weights, 16 images of 224 pixels; 32 steps, in which the source model is looked at once.
    Thresholds are out of reach, since random weights look ill.
    """
    from fretta.compat import import_timm

    torch.manual_seed(0)
    net = import_timm().create_model("resnet18").eval()
    lax = fretta.guard.Guard("rollback", max_cost=99.0, errors=99.0, window=1)
    ratios = {}
    for method in ("tent", "tsd"):
        adapters = [
            fretta.adapt(net, method),
            fretta.adapt(net, method, guard=lax),
            watched(net, method),
        ]
        spent = [0.0, 0.0, 0.0]
        for number in range(batches + 4):  # the first ones are compared in full
            x = torch.randn(16, 3, 224, 224)
            for place, adapter in enumerate(adapters):
                begin = time.process_time()
                adapter(x)
                spent[place] += (time.process_time() - begin) if number >= 4 else 0
        ratios[f"{method} seconds"] = spent[0] / batches
        ratios[f"{method} guard"] = spent[1] / spent[0] - 1
        ratios[f"{method} callbacks"] = spent[2] / spent[0] - 1
        print(
            f"{method}: {spent[0] / batches:.2f} s per step; with the guard"
            f" {100 * ratios[f'{method} guard']:+.1f} %, with callbacks"
            f" {100 * ratios[f'{method} callbacks']:+.1f} %",
            flush=True,
        )
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="2 seeds")
    parser.add_argument("--policy", default="rollback")
    parser.add_argument("--methods", help="default: all that the streams are for")
    parser.add_argument("--collapsing", action="store_true", help="not the healthy streams")
    parser.add_argument("--kind", action="append", help="only these streams")
    parser.add_argument("--healthy", action="store_true", help="only the healthy streams")
    parser.add_argument("--cost", action="store_true", help="only the time of a guarded step")
    parser.add_argument("--cifar-images", type=int, default=512, help="per corruption")
    parser.add_argument("--out", default=None, help="write the numbers here, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FrettaWarning)
    if options.cost:
        write(options.out, cost())
        return
    begin, world = time.time(), World.load()
    count = 2 if options.quick else options.seeds
    seeds = range(options.first_seed, options.first_seed + count)
    result: dict[str, Any] = {"seeds": list(seeds), "policy": options.policy}
    if not options.healthy:
        print(
            "stream      method  source: stream end | without: stream (worst) end (worst)"
            f" | {options.policy}: the same | batches acted on"
        )
        kinds = [k for k in KINDS if not options.kind or k.name in options.kind]
        methods = options.methods.split(",") if options.methods else list(LR)
        result["laboratory"] = laboratory(world, seeds, kinds, methods, options.policy)
    if not (options.kind or options.collapsing):
        print("\nhealthy      method  without  with (difference)  batches acted on")
        rows = []
        policy = options.policy
        methods = options.methods.split(",") if options.methods else ["bn", *LR, "tsd", "sar"]
        for batch in (64, 16):
            stream, title = digits_stream(world, batch, 0), f"digits {batch}"
            rows += healthy(title, world.model, stream, world.source, policy, methods)
        for number, name in enumerate(world.names):  # each corruption as a stream of its own
            stream = digits_stream(world, 64, 0, [number])
            rows += healthy(name, world.model, stream, world.source, policy, ("g-fret",))
        if os.environ.get("FRETTA_DATA"):
            case = open_benchmark("cifar10", corruption="all", severity=5)
            items = case.items(case.stream(batch_size=64, seed=0, limit=options.cifar_images))
            stream, source = [(i.x, i.y) for i in items], source_images("cifar10", 512)
            rows += healthy("cifar10-c 64", case.net, stream, source, policy, methods)
        result["healthy"] = rows
    result["seconds"] = round(time.time() - begin, 1)
    print(f"\n{result['seconds']} s")
    write(options.out, result)


if __name__ == "__main__":
    main()
