"""CIFAR ResNets and the digits network: names, shapes, numbers that can be worked out on paper."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from fretta.errors import ConfigError
from fretta.models import load
from fretta.models.cifar import NETWORKS, PaddedIdentity

# Weights of He et al., table 6 (in millions: .27 .46 .66 .85), exactly:
# stem 432; blocks of 3×3 convolutions; batch norm 2 per channel; head 64·10 + 10.
PARAMETERS = {
    "cifar:resnet20": 269_722,
    "cifar:resnet32": 464_154,
    "cifar:resnet44": 658_586,
    "cifar:resnet56": 853_018,
    "cifar:resnet18": 11_173_962,
    "digits:resnet8": 75_290,
}


@pytest.mark.parametrize("spec", list(NETWORKS))
def test_size_and_output(spec: str) -> None:
    model = load(spec)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[spec]
    assert not model.training
    with torch.no_grad():
        assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert load(spec, num_classes=3).get_submodule("linear").out_features == 3


def test_names_of_the_published_weights() -> None:
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    expected = {"conv1.weight", "linear.weight", "linear.bias", *(f"bn1.{n}" for n in norm)}
    for block in (f"layer{stage}.{number}" for stage in (1, 2, 3) for number in (0, 1, 2)):
        for i in (1, 2):
            expected |= {f"{block}.conv{i}.weight", *(f"{block}.bn{i}.{n}" for n in norm)}
    assert set(load("cifar:resnet20").state_dict()) == expected


def test_shortcuts() -> None:
    x = torch.arange(2 * 16.0).view(1, 2, 4, 4)
    y = PaddedIdentity(extra=2)(x)
    assert y.shape == (1, 4, 2, 2)
    assert y[0, 1].tolist() == [[0, 2], [8, 10]]  # pixels (0, 0), (0, 2), (2, 0), (2, 2)
    assert y[0, 2].tolist() == [[16, 18], [24, 26]]
    assert y[0, [0, 3]].abs().sum() == 0
    block = load("cifar:resnet20").get_submodule("layer1.0")
    nn.init.zeros_(block.get_submodule("conv2").weight)
    x = torch.rand(1, 16, 4, 4)  # not negative: the last ReLU leaves it alone
    with torch.no_grad():
        assert torch.equal(block(x), x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load("cifar:ResNet20"), "did you mean cifar:resnet20"),
        (lambda: load("cifar:resnet20", num_classes=0), "num_classes=0"),
        (lambda: load("cifar:resnet20", pretrained=True), "no weights to fetch"),
        (lambda: load("digits:vit"), "there are cifar:resnet20"),
    ],
)
def test_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()
