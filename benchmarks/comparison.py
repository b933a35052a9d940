"""A step here, in torch-ttt and in authors' code, on one network, in one process; do they agree?

    pip install torch-ttt einops     # no dependency of this package; torch-ttt imports einops
    git clone REPOSITORY             # of AUTHORS, into the folder `authors`
    python benchmarks/comparison.py --authors authors [--rounds 15] [--out comparison.json]

torch-ttt predicts after the update, so it is compared with `predict="after"`. Its documentation
calls `engine.eval()`, which also puts the model into eval mode: batch norms then normalize by the
source's statistics. With the engine alone in eval mode they normalize by the batch, as Tent does.
"""

from __future__ import annotations

import copy
import importlib.util
import math
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
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
AUTHORS = {  # what was compared; method: repository and commit on GitHub, file
    "tent": ("DequanWang/tent@e9e926a", "tent/tent.py"),
    "eta": ("mr-eggplant/EATA@dbf9302", "EATA/eata.py"),
    "sar": ("mr-eggplant/SAR@20f6e24", "SAR/sar.py"),
}


def theirs(net: nn.Module, whole: bool = True, **options: Any) -> Callable[[Tensor], Tensor]:
    """An engine as documented (`whole`: the model in eval mode, too), or by the batch."""
    engine = TentEngine(copy.deepcopy(net), options)
    if whole:
        engine.eval()
    else:
        engine.training = False
    return lambda x: engine(x)[0].detach()


def authors(
    method: str, net: nn.Module, folder: Path, margin: float = 0.4
) -> Callable[[Tensor], Tensor]:
    """The step of the authors' own code. E0 = `margin` ln C; ε follows, so that 1 keeps all."""
    file = folder / AUTHORS[method][1]
    code, E0 = module(file), margin * math.log(net(torch.zeros(2, 3, 32, 32)).shape[1])
    model = code.configure_model(copy.deepcopy(net))
    parameters = code.collect_params(model)[0]
    if method == "sar":
        ascent = module(file.with_name("sam.py")).SAM
        optimizer = ascent(parameters, torch.optim.SGD, lr=RATE, momentum=0.9)
        adapter = code.SAR(model, optimizer, margin_e0=E0)
    else:
        optimizer = torch.optim.Adam(parameters, lr=RATE)
        if method == "eta":
            adapter = code.EATA(model, optimizer, e_margin=E0, d_margin=margin)
        else:
            adapter = code.Tent(model, optimizer)
    return lambda x: adapter(x).detach()


def as_authors(method: str, net: nn.Module, margin: float = 0.4) -> Callable[[Tensor], Tensor]:
    """The same method and settings here."""
    options: dict[str, Any] = {"lr": RATE}
    if method == "eta":
        options |= {"e_margin": margin, "d_margin": margin}
    if method == "sar":  # the variant that leaves out layers by name, as the authors do
        options |= {"e_margin": margin, "variant": "released"}
    return ours(net, method, **options)


def module(file: Path) -> ModuleType:
    """A Python file, imported by its place."""
    found = importlib.util.spec_from_file_location(f"authors_{file.stem}", file)
    if found is None or found.loader is None or not file.is_file():
        raise SystemExit(f"{file} is missing: clone the repositories of AUTHORS into one folder")
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


def ours(net: nn.Module, method: str = "tent", **options: Any) -> Callable[[Tensor], Tensor]:
    return fretta.adapt(net, method, **options)


def main() -> None:
    parser = arguments(__doc__, rounds=15, model="cifar:resnet18", batch=32, size=32, classes=10)
    parser.add_argument("--authors", type=Path, help="folder with clones of AUTHORS")
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
    if options.authors:
        for method in AUTHORS:  # an untrained network: the usual margins would keep nothing
            steps[f"fretta {method}"] = as_authors(method, net, margin=1.0)
            steps[f"{method}, its authors' code"] = authors(method, net, options.authors, 1.0)
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
    apart = differences(options.authors)
    print(apart)
    facts = {"torch_ttt": version("torch-ttt"), "threads": torch.get_num_threads()}
    result = {**vars(options), **facts, "steps": rows, "largest_difference_of_logits": apart}
    result["authors"] = AUTHORS if options.authors else None
    del result["out"]
    write(options.out, result)


def differences(folder: Path | None, batches: int = 5) -> dict[str, float]:
    """The largest difference of a logit over some batches, on the shipped digits network."""
    net, _ = fretta.models.load_source("digits")
    torch.manual_seed(0)
    stream = [2 * torch.randn(32, 3, 32, 32) + 1 for _ in range(batches)]
    after = {"lr": RATE, "predict": "after"}
    pairs = {
        "torch-ttt tent, by the batch, fretta": (
            theirs(net, whole=False, **ONLINE),
            ours(net, **after),
        ),
        "torch-ttt tent, as documented, fretta": (theirs(net, **ONLINE), ours(net, **after)),
        "torch-ttt tent, as documented, fretta with statistics=source": (
            theirs(net, **ONLINE),
            ours(net, statistics="source", **after),
        ),
    }
    if folder:
        for method in AUTHORS:
            pair = authors(method, net, folder), as_authors(method, net)
            pairs[f"{method}, its authors' code, fretta"] = pair
    return {
        name: max(float((one(x) - other(x)).abs().max()) for x in stream)
        for name, (one, other) in pairs.items()
    }


if __name__ == "__main__":
    main()
