"""A plain PyTorch loop that adapts: predict along a loader, save the state, go on later.

python plain_loop.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import fretta
from fretta.data import Preprocessing, make_stream, open_dataset

STATE = Path("adapter.pt")


def foggy_digits() -> tuple[torch.nn.Module, DataLoader[tuple[Tensor, ...]]]:
    """Stands for your model and your loader of (normalized images, labels)."""
    model, card = fretta.models.load_source("digits")
    fog = open_dataset("digits", corruption="fog", severity=5)
    batches = list(make_stream(fog, "continual", seed=0, batch_size=64))
    preprocessing = Preprocessing.from_json(card.preprocessing)
    x = torch.cat([preprocessing.apply(batch.x) for batch in batches])
    y = torch.cat([batch.y for batch in batches])
    return model, DataLoader(TensorDataset(x, y), batch_size=64)


def predict(adapter: torch.nn.Module, batches: Iterator[tuple[Tensor, ...]]) -> tuple[int, int]:
    """Images that were right, and all. No optimizer, no backward: the adapter does that."""
    right = images = 0
    for x, y in batches:
        logits = adapter(x)  # predicts, then learns from x; it never sees y
        right += int((logits.argmax(1) == y).sum())
        images += len(y)
    return right, images


def main() -> None:
    model, loader = foggy_digits()
    before = predict(fretta.adapt(model, "source"), iter(loader))
    batches = iter(loader)
    adapter = fretta.adapt(model, guard="rollback")  # the model is copied, never touched
    first = predict(adapter, (next(batches) for _ in range(3)))
    torch.save(adapter.state_dict(), STATE)  # small: only what adaptation changed

    again = fretta.adapt(model, guard="rollback")  # tomorrow, in another process
    again.load_state_dict(torch.load(STATE, weights_only=True))
    rest = predict(again, batches)
    print(f"as it was  {before[0] / before[1]:.1%}")
    print(f"adapting   {(first[0] + rest[0]) / (first[1] + rest[1]):.1%}")
    print(f"health     {again.health}")


if __name__ == "__main__":
    main()
