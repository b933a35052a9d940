"""The support bank against a plain list that is sorted and cut."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fretta.errors import StateError
from fretta.parts.supports import SupportBank


def plain_bank(
    stream: list[tuple[Tensor, Tensor, Tensor]], classes: int, k: int
) -> dict[int, list]:
    kept: dict[int, list] = {c: [] for c in range(classes)}
    for z, label, entropy in stream:
        for row, c, h in zip(z, label.tolist(), entropy.tolist(), strict=True):
            kept[c].append((h, row))
        for c in kept:
            kept[c] = sorted(kept[c], key=lambda item: item[0])[:k]
    return kept


def random_stream(steps: int, classes: int, seed: int = 0) -> list[tuple[Tensor, Tensor, Tensor]]:
    g = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(8, 3, generator=g),
            torch.randint(classes, (8,), generator=g),
            torch.rand(8, generator=g),
        )
        for _ in range(steps)
    ]


@pytest.mark.parametrize(("classes", "k"), [(4, 1), (4, 3), (4, 50), (30, 2)])
def test_equals_the_plain_list(classes: int, k: int) -> None:
    stream = random_stream(12, classes)
    bank = SupportBank(classes, k, like=stream[0][0])
    for step, item in enumerate(stream):
        bank.add(*item)
        plain = plain_bank(stream[: step + 1], classes, k)
        for c in range(classes):
            expected = sum((row.double() for _, row in plain[c]), torch.zeros(3).double())
            torch.testing.assert_close(bank.total[c], expected)
            assert bank.count[c] == len(plain[c])
            slots = bank.entropy.view(classes, k)[c]
            assert sorted(slots[slots.isfinite()].tolist()) == pytest.approx(
                [h for h, _ in plain[c]]
            )


def test_by_hand() -> None:
    bank = SupportBank(2, 2, like=torch.zeros(1))
    bank.add(
        torch.tensor([[1.0], [10.0], [100.0]]),
        torch.tensor([0, 0, 0]),
        torch.tensor([0.3, 0.1, 0.2]),
    )
    assert bank.sums().tolist() == [[110.0], [0.0]]  # the least certain left
    assert bank.means(torch.tensor([[-1.0], [-2.0]])).tolist() == [[55.0], [-2.0]]
    # a tie: the older stays
    bank.add(torch.tensor([[5.0]]), torch.tensor([0]), torch.tensor([0.2]))
    assert bank.sums()[0].item() == 110
    bank.add(torch.tensor([[7.0]]), torch.tensor([0]), torch.tensor([0.05]))
    assert bank.sums()[0].item() == 17


def test_sums_do_not_drift_over_a_long_stream() -> None:
    """Moving sums by what came and went must not pile up rounding."""
    bank = SupportBank(2, 4, like=torch.zeros(3))
    g = torch.Generator().manual_seed(0)
    for step in range(3000):  # entropies fall, so that every batch replaces every support
        z = torch.randn(8, 3, generator=g) * 1000
        bank.add(z, torch.arange(8) % 2, torch.rand(8, generator=g) + 3000 - step)
    exact = bank.state_dict()["slots"].view(2, 4, 3).double().sum(1)
    torch.testing.assert_close(bank.total, exact, atol=1e-6, rtol=0)


def test_state_holds_only_filled_slots_and_goes_on() -> None:
    first, *rest = random_stream(6, 5)
    a, b = (SupportBank(5, 3, like=first[0]) for _ in range(2))
    a.add(*first)
    state = a.state_dict()
    assert len(state["rows"]) == int(a.count.sum()) <= 8
    b.add(*rest[0])
    b.load_state_dict(state)
    for item in rest:
        a.add(*item)
        b.add(*item)
    assert torch.equal(a.total, b.total)
    assert torch.equal(a.entropy, b.entropy)
    with pytest.raises(StateError, match="same model"):
        SupportBank(6, 3, like=first[0]).load_state_dict(state)
