"""What happens step by step: NRS, loss and accuracy along a stream. (Figure 3 of the paper.)"""

from __future__ import annotations

from typing import Any

from ...parts.redundancy import redundancy
from .losses import Losses
from .setting import OnBatch, Setting, finite, in_step


def mechanism(setting: Setting, on_batch: OnBatch | None = None) -> dict[str, Any]:
    """Per step and method: NRS of the batch, the loss that is descended, what was right.

    NRS and accuracy belong to the forward before the update, as the prediction does. Every method
    sees the same batches, so at each step differences between methods are due to learning alone.
    """
    dataset = setting.dataset()
    subject = setting.subject(dataset)
    adapters = subject.adapters()
    stream = setting.stream(dataset)
    curves: dict[str, dict[str, list[Any]]] = {
        method: {"nrs": [], "loss": [], "right": []} for method in adapters
    }
    domains, images = [], []
    for batch, x in in_step(stream, adapters, subject.preprocessing, setting.device, on_batch):
        domains.append(batch.domain)
        images.append(len(x))
        for method, adapter in adapters.items():
            z, _ = adapter.features(x)
            with Losses() as losses:
                logits = adapter(x)
            curve = curves[method]
            curve["nrs"].append(finite(float(redundancy(z, normalized=True))))
            curve["loss"].append(finite(losses.values[-1], 9) if losses.values else None)
            curve["right"].append(int((logits.argmax(1).cpu() == batch.y).sum()))
    return {
        **subject.about(
            "mechanism", f"Step by step: {setting.data['name']}, {subject.facts['spec']}"
        ),
        "domains": domains,
        "images": images,
        "curves": curves,
    }
