"""What happens step by step: NRS, loss and accuracy along a stream. (Figure 3 of the paper.)"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...adapter import Adapter
from ...parts.redundancy import redundancy
from .setting import OnBatch, Setting, correct, finite


class Losses(TorchFunctionMode):
    """Inside, notes the value of every loss on which `backward` is called.

        with Losses() as losses:
            adapter(x)
        losses.values        # of one step of any method; empty if it did not learn

    Nothing is computed twice and no number changes. SAR's ascent and TEA's sampling use
    `torch.autograd.grad`, so only the loss that the optimizer minimizes is noted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.values: list[float] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.backward:
            self.values.append(float(args[0].detach()))
        return func(*args, **(kwargs or {}))


def mechanism(setting: Setting, on_batch: OnBatch | None = None) -> dict[str, Any]:
    """Per step and method: NRS of the batch, the loss that is minimized, correct predictions.

    NRS and accuracy belong to the forward before the update, as the prediction does. Every method
    sees the same batches, so at each step differences between methods are due to learning alone.
    """
    case = setting.case()
    adapters = setting.adapters(case)
    curves: dict[str, dict[str, list[Any]]] = {
        method: {"nrs": [], "loss": [], "right": []} for method in adapters
    }
    with Losses() as losses:

        def watch(adapter: Adapter, curve: dict[str, list[Any]]) -> None:
            def before(_: Any, inputs: tuple[torch.Tensor]) -> None:
                z, _ = adapter.features(inputs[0])
                curve["nrs"].append(finite(float(redundancy(z, normalized=True))))
                losses.values.clear()

            def after(*_: Any) -> None:
                curve["loss"].append(finite(losses.values[-1], 9) if losses.values else None)

            adapter.register_forward_pre_hook(before)
            adapter.register_forward_hook(after)

        for method, adapter in adapters.items():
            watch(adapter, curves[method])
        domains, images = [], []
        for item, steps in setting.steps(case, adapters, on_batch):
            domains.append(item.domain)
            images.append(len(item.x))
            for method, step in steps.items():
                curves[method]["right"].append(int(correct(item, step).sum()))
    return {
        **setting.about("mechanism", "Step by step", case),
        "domains": domains,
        "images": images,
        "curves": curves,
    }
