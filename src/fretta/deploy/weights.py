"""The adapted model as plain weights, and a check of what they predict."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from safetensors.torch import save
from torch import Tensor, nn

from ..adapter import Adapter
from ..errors import ConfigError, InputError
from ..parts.features import logits_of
from .output import WEIGHTS, write_file
from .progress import CHECK, STATISTICS, Progress
from .result import Counts, WeightsCheck
from .setup import Setup


def write_weights(
    setup: Setup,
    adapter: Adapter,
    counts: Counts,
    progress: Progress,
    note: Callable[[str], None],
) -> WeightsCheck | None:
    """The adapted model as plain weights; None where the method has none to write.

    While adapting, batch norms use the statistics of each batch. A deployed model sees one
    image at a time, so it gets running statistics of the latest images, and then any code that
    loads the original weights can load these.
    """
    if adapter.safe:
        note(
            "at the end the guard let the source model predict, since adaptation looked"
            " harmful: the written weights are the original ones. A source model that is sure"
            " and wrong can mislead it: --guard warn only watches, and tells whether adapting"
            " is estimated to help"
        )
    recent, used = counts.recent, 0

    def recent_images() -> Iterator[Tensor]:
        nonlocal used
        for positions, x in setup.read(recent):
            yield x
            used += len(positions)
            progress.advance(len(positions))

    progress.begin(STATISTICS, len(recent))
    try:
        module = adapter.export(recent_images())
    except (ConfigError, InputError) as error:
        gone = isinstance(error, InputError) and not used  # as images that a pipe named may be
        why = f"none of the last {len(recent):,} images could be read again" if gone else error
        note(f"no weights were written: {why}")
        return None
    # clones: tensors that share memory are refused by the format, and loading needs both names
    tensors = {k: v.detach().cpu().contiguous().clone() for k, v in module.state_dict().items()}
    write_file(setup.options.out / WEIGHTS, save(tensors, {"format": "pt"}))
    if adapter.model.statistics is not None:
        used = 0  # the statistics are the adapter's own
    return _check(module, used, setup, counts, progress)


def _check(
    module: nn.Module, used: int, setup: Setup, counts: Counts, progress: Progress
) -> WeightsCheck:
    """The plain model and the adapter on images spread over the run."""
    entries = sorted(counts.spread, key=lambda entry: str(entry[1]))
    rows: list[list[int]] = [[], [], []]  # class by the plain model, by the adapter, label
    progress.begin(CHECK, len(entries))
    with torch.inference_mode():
        for positions, x in setup.read([name for _, name, _, _ in entries]):
            rows[0] += logits_of(module(x), len(x)).argmax(1).tolist()
            rows[1] += [entries[i][2] for i in positions]
            rows[2] += [entries[i][3] for i in positions]
            progress.advance(len(positions))
    plain, before, label = torch.tensor(rows)
    known = label >= 0
    pairs = (plain == before, (plain == label)[known], (before == label)[known])
    shares = (int(hits.sum()) / len(hits) if len(hits) else None for hits in pairs)
    return WeightsCheck(used, len(plain), *shares)
