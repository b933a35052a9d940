"""Distances of statistics and their noise, against the formulas written out."""

from __future__ import annotations

import pytest
import torch
from diagnosis_nets import group_norm
from torch import nn

import fretta
from fretta.diagnosis.measure import Looking
from fretta.diagnosis.moments import Moments, Reference, Watch, channel_axis


def test_the_five_sums_give_the_formulas() -> None:
    torch.manual_seed(0)
    x = torch.randn(37, 5, 4, 3) * torch.rand(1, 5, 1, 1).add(0.5) + torch.randn(37, 5, 1, 1)
    mean, var = torch.randn(5), torch.rand(5) + 0.5
    moments = Moments(Reference(mean, var), 5)
    far = torch.cat([moments.add(part, 1) for part in x.split(16)])
    found = moments.shift("layer")

    x = x.double()
    about, spread = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
    per_image = x.mean((2, 3))
    second = (x - about.view(1, 5, 1, 1)).square().mean((2, 3))
    expected = (
        ((about - mean).square() / var).mean(),
        (per_image.var(0) / 37 / var).mean(),
        ((spread - var).square() / var.square()).mean(),
        (second.var(0) / 37 / var.square()).mean(),
    )
    values = (found.mean, found.mean_noise, found.var, found.var_noise)
    torch.testing.assert_close(torch.tensor(values), torch.stack(expected).float())
    assert found.mean_noise_of_one == pytest.approx(37 * found.mean_noise)
    deviation = x.std((2, 3), correction=0) / var.sqrt()
    distance = (per_image - mean).square() / var + (deviation - 1).square()
    torch.testing.assert_close(far, distance.mean(1), rtol=1e-4, atol=1e-5)


def test_chance_alone_is_about_its_noise() -> None:
    torch.manual_seed(1)
    moments = Moments(Reference(torch.zeros(400), torch.ones(400)), 400)
    for _ in range(4):
        # images differ as wholes too: pixels of one image are not independent
        moments.add(torch.randn(32, 400, 9) * 0.8 + torch.randn(32, 400, 1) * 0.6, 1)
    found = moments.shift("layer")
    assert 0.8 < found.ratio < 1.25
    assert found.moved < 0.06
    assert found.noise_of_batch(8) == pytest.approx(4 * found.noise_of_batch(128))


def test_dead_channels_do_not_decide() -> None:
    """A channel that never varied in training would be infinitely far."""
    moments = Moments(Reference(torch.zeros(4), torch.tensor([1.0, 1.0, 1.0, 0.0])), 4)
    moments.add(torch.full((2, 4, 3), 1e-3), 1)
    assert moments.shift("layer").mean < 1e-3


def test_layers_come_in_the_order_of_the_forward() -> None:
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.first = nn.BatchNorm2d(3), nn.BatchNorm2d(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.last(self.first(x)).mean((2, 3))
            return y

    net = Backwards().eval()
    watch = Watch(net)
    with watch.watching(4):
        net(torch.randn(4, 3, 5, 5))
    assert [shift.name for shift in watch.shifts()] == ["first", "last"]
    assert watch.batch_norms == 2


def test_other_norms_are_compared_with_source_images() -> None:
    torch.manual_seed(0)
    source, same = torch.randn(64, 3, 8, 8), torch.randn(64, 3, 8, 8)
    net = group_norm()
    alone = fretta.diagnose(net, same)
    assert alone.facts.layers == []
    assert alone.advice[0].kind == "cannot-tell"
    known = fretta.diagnose(net, same, source=source).facts
    assert known.moved is not None
    assert known.moved < 0.1
    moved = fretta.diagnose(net, 2 * same + 1, source=source)
    assert moved.advice[0].kind == "adapt"
    assert "no-batch-norm" in {a.kind for a in moved.advice}


def test_where_the_channels_are() -> None:
    tokens, images = torch.zeros(2, 7, 12), torch.zeros(2, 12, 5, 5)
    assert channel_axis(nn.LayerNorm(12), tokens) == 2
    assert channel_axis(nn.LayerNorm(12), images) == 1  # a LayerNorm for images
    assert channel_axis(nn.LayerNorm(12), torch.zeros(2, 12, 12, 12)) == 3
    assert channel_axis(nn.GroupNorm(2, 12), images) == 1


def test_the_head_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In two images of the first batch; later batches pass once."""
    seen: list[int] = []
    net = group_norm()
    net.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    looking = Looking(net, head=None)
    for size in (6, 6, 5):
        before = len(seen)
        looking(torch.rand(size, 3, 8, 8))
        if before:
            assert seen[before:] == [size]
    assert 2 in seen
    assert looking.sums.images == 17
