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
from torch import Tensor, nn

from ..adapter import Adapter
from ..parts.features import logits_of
from .feed import read_batches
from .opened import Opened
from .outputs import write_whole
from .pace import CHECK, STATISTICS, Pace
from .plan import Plan
from .result import Exported
from .tally import Tally


def write_weights(
    path: Path, adapter: Adapter, opened: Opened, plan: Plan, tally: Tally, pace: Pace
) -> Exported:
    """Write the weights, and check the plain model on images spread over the whole run."""
    used = 0

    def images() -> Iterator[Tensor]:
        nonlocal used
        for positions, x in _read(tally.recent, opened, plan):
            yield x
            used += len(positions)
            pace.advance(len(positions))

    pace.begin(STATISTICS, len(tally.recent))
    module = adapter.export(images())
    # clones: tensors that share memory are refused by the format, and loading needs both names
    tensors = {k: v.detach().cpu().contiguous().clone() for k, v in module.state_dict().items()}
    write_whole(path, save(tensors, {"format": "pt"}))
    pace.begin(CHECK, len(tally.spread))
    return _checked(module, used, opened, plan, tally, pace)


def _read(names: list[str], opened: Opened, plan: Plan) -> Iterator[tuple[list[int], Tensor]]:
    paths = [opened.listing.path(name) for name in names]
    for positions, pixels in read_batches(paths, opened.decoding, plan.batch_size, plan.workers):
        yield positions, opened.preprocessing.apply(pixels, opened.device)


def _checked(
    module: nn.Module, used: int, opened: Opened, plan: Plan, tally: Tally, pace: Pace
) -> Exported:
    entries = sorted(tally.spread, key=lambda entry: entry[1])
    same = right = seen = labeled = before_right = 0
    with torch.inference_mode():
        for positions, x in _read([entry[1] for entry in entries], opened, plan):
            classes = logits_of(module(x), len(x)).argmax(1).tolist()
            for position, number in zip(positions, classes, strict=True):
                _, _, before, truth = entries[position]
                seen += 1
                same += number == before
                labeled += truth >= 0
                right += number == truth
                before_right += before == truth
            pace.advance(len(positions))
    return Exported(
        used,
        seen,
        same / seen if seen else None,
        right / labeled if labeled else None,
        before_right / labeled if labeled else None,
    )
