"""fretta.evaluate: any DataLoader of (x, y)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import fretta
from fretta.errors import ConfigError, InputError
from nets import batches, build


class Brightness(nn.Module):
    """Class 0 for dark images, 1 for bright ones; class 2 never."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((1, 2, 3))
        return torch.stack([-mean, mean, torch.full_like(mean, -99.0)], 1)


def test_numbers_that_can_be_counted() -> None:
    x = torch.tensor([-1.0, -1.0, 1.0, 1.0])[:, None, None, None].expand(4, 3, 2, 2)
    y = torch.tensor([0, 1, 1, 1])
    found = fretta.evaluate(
        fretta.adapt(Brightness(), "source"),
        DataLoader(TensorDataset(x, y), batch_size=3),
        class_names=["dark", "bright", "blue"],
    )
    assert (found.accuracy, found.images) == (0.75, 4)
    assert found.accuracy_macro == pytest.approx((1 + 2 / 3) / 2)
    assert found.ece == pytest.approx(float(torch.sigmoid(torch.tensor(2.0))) - 0.75, abs=1e-6)
    assert [row["images"] for row in found.per_class] == [1, 3, 0]
    assert [row["predicted"] for row in found.per_class] == [2, 2, 0]
    assert found.per_class[2] == {"class": "blue", "images": 0, "accuracy": None, "predicted": 0}
    assert "75.0%" in str(found)
    assert "bright" in str(found)


def test_it_adapts_on_the_way() -> None:
    first, second = batches(6, 6)
    loader = [(first, torch.zeros(6, dtype=torch.long)), (second, torch.ones(6, dtype=torch.long))]
    one, other = (fretta.adapt(build("resnet-like"), "tent", lr=1e-2) for _ in range(2))
    found = fretta.evaluate(one, loader)
    right = sum(int((other(x).argmax(1) == y).sum()) for x, y in loader)
    assert found.accuracy == right / 12
    assert torch.equal(one.predict(first), other.predict(first))


@pytest.mark.parametrize(
    ("loader", "says"),
    [
        ([], "empty"),
        ([torch.zeros(2, 3, 8, 8)], "Tensor"),
        ([(torch.zeros(2, 3, 8, 8), torch.zeros(3, dtype=torch.long))], "2 images"),
        ([(torch.zeros(2, 3, 8, 8), torch.zeros(2))], "float32"),
        ([(torch.zeros(2, 3, 8, 8), torch.zeros(2, dtype=torch.bool))], "bool"),
        ([(torch.zeros(2, 3, 8, 8), torch.tensor([0, 7]))], "0 to 7"),
    ],
)
def test_loaders_that_cannot_be_used(loader: list[object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        fretta.evaluate(fretta.adapt(Brightness(), "source"), loader)
    with pytest.raises(ConfigError, match=r"fretta\.adapt\(model, 'source'\)"):
        fretta.evaluate(Brightness(), loader)  # type: ignore[arg-type]


def test_a_model_that_diverged_is_not_right_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """The argmax of NaN is class 0."""
    adapter = fretta.adapt(Brightness(), "source")
    logits = torch.tensor([[1.0, -1.0], [torch.nan, torch.nan], [torch.nan, 0.0]])
    monkeypatch.setattr(adapter, "forward", lambda x: logits)
    found = fretta.evaluate(adapter, [(torch.zeros(3, 3, 2, 2), torch.zeros(3).long())])
    assert found.accuracy == pytest.approx(1 / 3)
    assert [row["predicted"] for row in found.per_class] == [1, 0]
    assert found.ece is None
    assert "ECE –" in str(found)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.int32])
def test_labels_of_any_whole_type(kind: torch.dtype) -> None:
    x = torch.tensor([-1.0, 1.0])[:, None, None, None].expand(2, 3, 2, 2)
    loader = [(x, torch.tensor([0, 1], dtype=kind))]
    assert fretta.evaluate(fretta.adapt(Brightness(), "source"), loader).accuracy == 1
