"""Choices made once for everybody, measured: optimizer kernels, memory layout, compiled blocks.

    python benchmarks/choices.py              # optimizer and layout
    python benchmarks/choices.py --compile    # torch.compile too (minutes)

One thread; everything that is compared runs in turns in one process. Prints medians.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from common import arguments, in_turns, seconds, write
from torch import nn

import fretta

NETWORKS = (  # name, pixels, batch
    ("timm:resnet18", 224, 16),
    ("cifar:resnet20", 32, 128),
    ("cifar:resnet18", 32, 32),
    ("timm:tf_efficientnet_lite0", 160, 32),
)


def optimizers(rounds: int) -> dict[str, dict[str, float]]:
    results = {}
    net = fretta.models.load("timm:resnet18")
    norms = [p for m in net.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters()]
    for title, parameters in (("norm layers", norms), ("all", list(net.parameters()))):
        steps = {
            "loop": _adam(parameters, foreach=False),
            "foreach": _adam(parameters, foreach=True),
            "fused": _adam(parameters, fused=True),
        }
        found = in_turns(steps, rounds)
        text = ", ".join(f"{name} {ms:.2f} ms" for name, ms in found.items())
        print(f"Adam over {len(parameters)} tensors of a ResNet-18 ({title}): {text}")
        results[title] = {"tensors": len(parameters), **found}
    return results


def _adam(parameters: list[nn.Parameter], **options: bool) -> Callable[[], object]:
    mine = [nn.Parameter(p.detach().clone()) for p in parameters]
    for p in mine:
        p.grad = torch.randn_like(p)
    return torch.optim.Adam(mine, lr=1e-3, **options).step


def layouts(rounds: int) -> dict[str, float]:
    ratios = {}
    for name, pixels, batch in NETWORKS:
        net, x = fretta.models.load(name), torch.randn(batch, 3, pixels, pixels)
        steps = {
            layout: partial(fretta.adapt(net, "tent", compute=fretta.Compute(layout=layout)), x)
            for layout in ("contiguous", "channels_last")
        }
        found = in_turns(steps, rounds)
        ratio = found["channels_last"] / found["contiguous"]
        print(f"{name} at {pixels}: channels-last {ratio:.2f} of contiguous")
        ratios[f"{name} at {pixels}"] = ratio
    return ratios


def compiled(rounds: int) -> None:
    net, x = fretta.models.load("cifar:resnet20"), torch.randn(32, 3, 32, 32)
    plain = fretta.adapt(net, "tent")
    fast = fretta.adapt(net, "tent", compute=fretta.Compute(compile="inductor"))
    print(f"compiling a ResNet-20: {seconds(fast, x):.0f} s")
    found = in_turns({"plain": partial(plain, x), "compiled": partial(fast, x)}, rounds)
    print(f"a compiled step takes {found['compiled'] / found['plain']:.2f} of a plain one")


def main() -> None:
    parser = arguments(__doc__, rounds=7)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    milliseconds, ratios = optimizers(10 * options.rounds), layouts(options.rounds)
    write(options.out, {"adam_milliseconds": milliseconds, "channels_last": ratios})
    if options.compile:
        compiled(options.rounds)


if __name__ == "__main__":
    main()
