"""A Tent step here and in torch-ttt, on one network, in one process; and whether they agree.

    pip install torch-ttt einops     # no dependency of this package; torch-ttt imports einops
    python benchmarks/comparison.py [--rounds 15] [--out comparison.json]

torch-ttt predicts after the update, so it is compared with `predict="after"`. Its documentation
calls `engine.eval()`, which also puts the model into eval mode: batch norms then normalize by the
source's statistics. With the engine alone in eval mode they normalize by the batch, as Tent does.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch
from common import arguments, write
from torch import Tensor, nn
from torch_ttt.engine.tent_engine import TentEngine

import fretta
from fretta.experiment.bench import FLOOR, bare_forward, floor_step
from fretta.models import load

RATE = 1e-3
ONLINE = {"lr": RATE, "num_steps": 1, "copy_model": False}


def theirs(net: nn.Module, whole: bool = True, **options: Any) -> Callable[[Tensor], Tensor]:
    """An engine as documented (`whole`: the model in eval mode, too), or by the batch."""
    engine = TentEngine(copy.deepcopy(net), options)
    if whole:
        engine.eval()
    else:
        engine.training = False
    return lambda x: engine(x)[0].detach()


def ours(net: nn.Module, method: str = "tent", **options: Any) -> Callable[[Tensor], Tensor]:
    return fretta.adapt(net, method, **options)


def main() -> None:
    parser = arguments(__doc__, rounds=15, model="cifar:resnet18", batch=32, size=32, classes=10)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = load(options.model, num_classes=options.classes).eval()
    x = torch.randn(options.batch, 3, options.size, options.size)
    steps = {
        "forward": bare_forward(net),
        FLOOR: floor_step(net),
        "fretta tent": ours(net, lr=RATE),
        "fretta tent, predicts after": ours(net, lr=RATE, predict="after"),
        "torch-ttt tent, online, by the batch": theirs(net, whole=False, **ONLINE),
        "torch-ttt tent, online, as documented": theirs(net, **ONLINE),
        "fretta tent, 3 steps, episodic": ours(
            net, lr=RATE, steps=3, episodic=True, predict="after"
        ),
        "torch-ttt tent, its defaults": theirs(net, lr=RATE),  # 3 steps on a copy of the model
        "fretta g-fret": ours(net, "g-fret"),
    }
    for step in steps.values():
        step(x)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(options.rounds):
        for name in steps if number % 2 else reversed(steps):
            begin = time.process_time()  # one thread: what others do on the machine does not count
            steps[name](x)
            times[name].append(time.process_time() - begin)
    rows = []
    for name, taken in times.items():
        ratios = [mine / floor for mine, floor in zip(taken, times[FLOOR], strict=True)]
        low, _, high = statistics.quantiles(ratios, n=4)
        row = {"name": name, "milliseconds": 1000 * statistics.median(taken), "low": low}
        rows.append({**row, "ratio": statistics.median(ratios), "high": high})
        print(f"{name:40} {rows[-1]['milliseconds']:8.1f} ms   x {rows[-1]['ratio']:.2f}")
    apart = differences()
    print(apart)
    facts = {"torch_ttt": version("torch-ttt"), "threads": torch.get_num_threads()}
    result = {**vars(options), **facts, "steps": rows, "largest_difference_of_logits": apart}
    del result["out"]
    write(options.out, result)


def differences(batches: int = 5) -> dict[str, float]:
    """The largest difference of a logit over some batches, on the shipped digits network."""
    net, _ = fretta.models.load_source("digits")
    torch.manual_seed(0)
    stream = [2 * torch.randn(32, 3, 32, 32) + 1 for _ in range(batches)]
    after = {"lr": RATE, "predict": "after"}
    pairs = {
        "by the batch, fretta": (theirs(net, whole=False, **ONLINE), ours(net, **after)),
        "as documented, fretta": (theirs(net, **ONLINE), ours(net, **after)),
        "as documented, fretta with statistics=source": (
            theirs(net, **ONLINE),
            ours(net, statistics="source", **after),
        ),
    }
    return {
        name: max(float((one(x) - other(x)).abs().max()) for x in stream)
        for name, (one, other) in pairs.items()
    }


if __name__ == "__main__":
    main()
