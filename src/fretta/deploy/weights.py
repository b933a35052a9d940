"""The adapted model as plain weights: the user's key names, running statistics of the new images.

While adapting, batch norms use the statistics of each batch. A deployed model sees one image at a
time, so it gets running statistics measured on the latest images, and then any code that can load
the original weights can load these.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from ..adapter import Adapter
from ..parts.features import logits_of
from .output import write_file
from .progress import CHECK, STATISTICS, Progress
from .result import Counts, WeightsCheck
from .setup import Setup


def write_weights(
    path: Path, adapter: Adapter, setup: Setup, counts: Counts, progress: Progress
) -> WeightsCheck:
    """Write the weights, and check the plain model on images spread over the run."""
    used = 0

    def recent_images() -> Iterator[Tensor]:
        nonlocal used
        for positions, x in setup.read(counts.recent):
            yield x
            used += len(positions)
            progress.advance(len(positions))

    progress.begin(STATISTICS, len(counts.recent))
    module = adapter.export(recent_images())
    # clones: tensors that share memory are refused by the format, and loading needs both names
    tensors = {k: v.detach().cpu().contiguous().clone() for k, v in module.state_dict().items()}
    write_file(path, save(tensors, {"format": "pt"}))

    progress.begin(CHECK, len(counts.spread))
    entries = sorted(counts.spread, key=lambda entry: str(entry[1]))
    rows: list[list[int]] = [[], [], []]  # class by the plain model, by the adapter, label
    with torch.inference_mode():
        for positions, x in setup.read([name for _, name, _, _ in entries]):
            rows[0] += logits_of(module(x), len(x)).argmax(1).tolist()
            rows[1] += [entries[i][2] for i in positions]
            rows[2] += [entries[i][3] for i in positions]
            progress.advance(len(positions))
    plain, before, label = torch.tensor(rows)
    known = label >= 0
    return WeightsCheck(
        used,
        len(plain),
        _mean(plain == before),
        _mean((plain == label)[known]),
        _mean((before == label)[known]),
    )


def _mean(hits: Tensor) -> float | None:
    return int(hits.sum()) / len(hits) if len(hits) else None
