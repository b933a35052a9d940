"""The head is found by looking, on models of every origin; norm layers and blocks by depth."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fretta
from fretta.compat import import_timm, import_torchvision
from fretta.errors import HeadError
from fretta.parts.classifier import Classifier
from fretta.parts.features import find_head
from fretta.parts.norm import affine_names, norm_layers, without_last_block
from nets import CLASSES, TIGHT, Wrapped, batches, build, timm_model

X = batches(2)[0]


def torchvision_model(name: str) -> nn.Module:
    import_torchvision()
    from torchvision import models

    return models.get_model(name, weights=None, num_classes=CLASSES).eval()


@pytest.mark.parametrize(
    ("make", "head"),
    [
        (lambda: build("resnet-like"), "fc"),
        (lambda: build("nested-bn"), "4"),
        (lambda: build("vit-like"), "head"),
        (lambda: build("timm-resnet18"), "fc"),
        (lambda: build("timm-vit_tiny"), "head"),
        (lambda: build("timm-efficientnet"), "classifier"),
        (lambda: build("hf-vit"), "classifier"),
        (lambda: timm_model("convnext_atto").eval(), "head.fc"),
        (lambda: timm_model("regnetx_002").eval(), "head.fc"),
        (lambda: timm_model("resnetv2_50").eval(), "head.fc"),  # a 1×1 convolution
        (lambda: torchvision_model("resnet18"), "fc"),
        (lambda: torchvision_model("mobilenet_v3_small"), "classifier.3"),
        (lambda: torchvision_model("shufflenet_v2_x0_5"), "fc"),
    ],
)
def test_head_is_found(make: Any, head: str) -> None:
    net = make()
    with torch.no_grad():
        assert find_head(net, X) == head
        model = Classifier(net, head)
        assert model.head_weight().shape[0] == CLASSES
        z, logits = model.features(X)
        torch.testing.assert_close(model.head(z), logits)


def test_modules_after_the_head_do_not_confuse() -> None:
    net = nn.Sequential(
        nn.Flatten(),
        nn.Linear(3 * 32 * 32, 8),
        nn.LayerNorm(8),
        nn.Sequential(nn.Linear(8, CLASSES), nn.Identity(), nn.Flatten(), nn.Dropout(0.5)),
    ).eval()
    with torch.no_grad():
        assert find_head(net, X) == "3.0"


def test_rescaled_logits_name_the_candidate() -> None:
    scaled = Wrapped(lambda y: y / 0.1)
    with pytest.raises(HeadError, match=r"head='net\.fc'"):
        fretta.adapt(scaled, "s-fret")(X)
    assert fretta.adapt(scaled, "s-fret", head="net.fc")(X).shape == (2, CLASSES)


@pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
@pytest.mark.parametrize("key", ["stein", "auto"])
def test_features_are_those_of_the_adapted_model(key: str) -> None:
    """Where the source model is asked, too, for fewer or more images than ever before."""
    adapter = fretta.adapt(build("resnet-like").double(), key)
    for x in batches(6, 20, 20):
        adapter(x.double())
    for weight in (0.5, 1.0):
        vars(adapter.method)["gate"].weight = weight
        for x in batches(3, 40, 1, seed=1):
            z, logits = adapter.features(x.double())
            assert z.shape == (len(x), 16)
            assert torch.equal(logits, adapter.predict(x.double()))
            with torch.no_grad():
                own, adapted = adapter.model.head(z), adapter.model(x.double())
            torch.testing.assert_close(own, adapted, atol=TIGHT, rtol=0)
            source = adapter.source_logits(x.double())
            assert not torch.allclose(adapted, source, atol=100 * TIGHT)


@pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")
def test_features_of_single_images_are_joined() -> None:
    """memo predicts image by image, in its initial state: the head is the one that was given."""
    net = build("resnet-like").double()
    adapter = fretta.adapt(net, "memo", views=2)
    adapter(X.double())
    for x in batches(3, 5, 1):
        z, logits = adapter.features(x.double())
        assert z.shape == (len(x), 16)
        torch.testing.assert_close(net.fc(z).detach(), logits, atol=TIGHT, rtol=0)


def test_a_head_computed_in_forward() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(3)
            self.weight = nn.Parameter(torch.randn(CLASSES, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(x).mean((2, 3)) @ self.weight.T

    with pytest.raises(HeadError, match=r"computed in forward itself.*'tent'"):
        fretta.adapt(Functional(), "g-fret")(X)


# ---- norm layers -------------------------------------------------------------------------------


def test_every_kind_of_norm_layer_is_found() -> None:
    import_timm()
    from timm.layers import BatchNormAct2d, LayerNorm2d, RmsNorm

    class LlamaRMSNorm(nn.Module):  # as libraries write it: a subclass of nothing
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

    layers = [
        *(nn.BatchNorm1d(4), nn.BatchNorm2d(4), nn.BatchNorm3d(4), nn.SyncBatchNorm(4)),
        *(nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.InstanceNorm2d(4, affine=True), nn.RMSNorm(4)),
        *(BatchNormAct2d(4), LayerNorm2d(4), RmsNorm(4), LlamaRMSNorm()),
    ]
    others = [
        nn.Linear(4, 4),
        nn.Conv2d(4, 4, 1),
        nn.PReLU(4),
        nn.Embedding(4, 4),
        nn.LayerNorm(4, elementwise_affine=False),
    ]
    net = nn.ModuleList([*layers, *others])
    without_parameters = nn.BatchNorm2d(4, affine=False)
    net.append(without_parameters)
    found = norm_layers(net)
    assert [net[int(name)] for name in found] == [*layers, others[-1], without_parameters]
    shifts = sum(getattr(layer, "bias", None) is not None for layer in layers)
    assert len(affine_names(found)) == len(layers) + shifts


def blocks_left_out(net: nn.Module) -> set[str]:
    out = norm_layers(net).keys() - without_last_block(net).keys()
    return {".".join(name.split(".")[:2]) if name.count(".") else name for name in out}


@pytest.mark.parametrize(
    ("make", "left_out"),
    [
        (lambda: build("resnet-like"), {"layer4.0"}),
        (lambda: build("timm-resnet18"), {"layer4.0", "layer4.1"}),
        (lambda: torchvision_model("resnet50"), {"layer4.0", "layer4.1", "layer4.2"}),
        (
            lambda: import_timm().create_model("vit_tiny_patch16_224"),
            {"blocks.9", "blocks.10", "blocks.11", "norm"},
        ),
        (lambda: build("timm-efficientnet"), {"blocks.6", "bn2"}),
        (lambda: build("group-norm"), {"4"}),
    ],
)
def test_the_last_block_is_judged_by_depth(make: Any, left_out: set[str]) -> None:
    assert blocks_left_out(make()) == left_out


def test_the_last_block_does_not_depend_on_names() -> None:
    plain = build("resnet-like")
    renamed = nn.ModuleDict({"backbone": nn.Sequential(*plain.children())})
    assert len(without_last_block(renamed)) == len(without_last_block(plain))
    assert len(without_last_block(build("hf-vit"))) < len(norm_layers(build("hf-vit")))
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    assert list(without_last_block(net)) == ["1"]  # a single one is never left out
