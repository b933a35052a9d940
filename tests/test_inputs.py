"""Bad input gets a clear error, nothing changes, and the adapter goes on working."""

from __future__ import annotations

import re
import warnings
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fretta
from fretta.errors import (
    ConfigError,
    FrettaWarning,
    HeadError,
    InputError,
    ModelError,
    NeedError,
    SmallBatchWarning,
)
from nets import CLASSES, TIGHT, Wrapped, batches, build, grid, same

GOOD = batches(6)[0]


def with_bad_pixel(value: float) -> Tensor:
    x = GOOD.clone()
    x[2, 0, 3, 3] = value
    x[4, 1, 0, 0] = value
    return x


BAD = {
    "nan": (with_bad_pixel(torch.nan), r"2 of 6 images, at batch position \[2, 4\]"),
    "inf": (with_bad_pixel(torch.inf), r"2 of 6 images, at batch position \[2, 4\]"),
    "minus inf": (with_bad_pixel(-torch.inf), r"at batch position \[2, 4\]"),
    "huge": (with_bad_pixel(1e30), r"large pixels \(over 1e\+06\) in 2 of 6 images"),
    "sparse": (GOOD.to_sparse(), r"torch\.sparse_coo, torch\.float32; give a dense"),
    "no pixels": (torch.empty(4, 3, 0, 0), r"shape \(4, 3, 0, 0\)"),
    "channels": (torch.randn(4, 1, 32, 32), r"1 channels .* first convolution expects 3"),
    "channels last axis": (torch.randn(4, 32, 32, 3), r"32 channels .* expects 3"),
    "integers": (torch.zeros(4, 3, 32, 32, dtype=torch.uint8), r"uint8.*x\.float\(\) / 255"),
    "doubles": (GOOD.double(), r"float64, the model torch\.float32; use x\.to\(torch\.float32\)"),
    "device": (
        torch.empty(4, 3, 32, 32, device="meta"),
        r"is on meta, the model on cpu; use x\.to\('cpu'\)",
    ),
    "empty": (torch.empty(0, 3, 32, 32), r"shape \(0, 3, 32, 32\)"),
    "one number": (torch.tensor(1.0), r"shape \(\)"),
    "a list": ([[1.0]], r"the batch is a list"),
    "one image": (torch.randn(3, 32, 32), r"\(3, 32, 32\): it wants \(N, C, H, W\).*x\[None\]"),
    "too small": (torch.randn(4, 3), r"cannot process a batch of shape \(4, 3\); it says"),
}


@pytest.mark.parametrize("kind", list(BAD))
@pytest.mark.parametrize(
    "key",
    grid(["source", "bn", "tent", "g-fret", "sar", "tsd", "tea"], {"g-fret", "tea"}.__contains__),
)
@pytest.mark.parametrize("when", ["first", "later"])
def test_bad_batch(kind: str, key: str, when: str) -> None:
    x, message = BAD[kind]
    quick = {"sgld_steps": 1, "buffer_size": 8} if key == "tea" else {}
    adapter = fretta.adapt(build("resnet-like"), key, **quick)
    untouched = fretta.adapt(build("resnet-like"), key, **quick)
    if when == "later":
        adapter(GOOD), untouched(GOOD)
    before = adapter.state_dict()
    with pytest.raises(InputError, match=message):
        adapter(x)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        adapter.predict(x)  # type: ignore[arg-type]
    assert same(adapter.state_dict(), before)
    assert torch.equal(adapter(GOOD), untouched(GOOD))


def test_batch_of_one_falls_back_and_says_so_once() -> None:
    """BatchNorm1d has no variance over one sample: source statistics, one warning."""
    x = batches(1)[0]
    adapter = fretta.adapt(build("nested-bn"), "bn")
    with pytest.warns(FrettaWarning, match="single value per channel.*source statistics"):
        one = adapter(x)
    assert torch.equal(adapter(x), one)  # no second warning: it would be an error here
    # the layers that can use the batch still do
    assert not torch.allclose(one, fretta.adapt(build("nested-bn"), "source")(x))


def test_s_fret_does_not_step_on_a_batch_of_one() -> None:
    adapter = fretta.adapt(build("vit-like"), "s-fret")
    x = batches(1)[0]
    adapter.predict(x)
    before = adapter.state_dict()
    with pytest.warns(FrettaWarning, match="batch of one"):
        adapter(x)
    adapter(x)  # warns once
    assert same(adapter.state_dict()["adapted"], before["adapted"])
    adapter(GOOD)
    assert not same(adapter.state_dict()["adapted"], before["adapted"])


def small_batch_warnings(adapter: fretta.Adapter, *sizes: int) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x in batches(*sizes):
            adapter(x)
    found = [w for w in caught if w.category is SmallBatchWarning]
    assert all(w.filename == __file__ for w in found)  # at the caller's line
    return [str(w.message) for w in found]


@pytest.mark.parametrize("key", ["bn", "tent", "g-fret", "tsd"])
def test_small_batches_are_warned_of_once(key: str) -> None:
    # alone; one below 16; after larger ones two in a row, which is no last batch of a stream
    for sizes in ((1, 1, 1), (15,), (16, 8, 8, 8)):
        (warning,) = small_batch_warnings(fretta.adapt(build("resnet-like"), key), *sizes)
    for word in (key, "'auto' or 'stein'", "'source'"):
        assert word in warning


def test_no_warning_where_small_batches_do_no_harm() -> None:
    def warned(net: str, key: str, *sizes: int, **more: Any) -> list[str]:
        return small_batch_warnings(fretta.adapt(build(net), key, **more), *sizes)

    assert not warned("resnet-like", "tent", 16, 16, 3)  # a last one
    assert not warned("resnet-like", "tent", 16, 3, 16, 3, 16)  # the last ones of some domains
    assert not warned("resnet-like", "source", 1, 1)
    assert not warned("resnet-like", "bn", 1, 1, alpha=0.5)
    assert not warned("vit-like", "tent", 1, 1)
    resumed, first = (fretta.adapt(build("resnet-like"), "tent") for _ in range(2))
    first(batches(16)[0])
    resumed.load_state_dict(first.state_dict())
    assert not small_batch_warnings(resumed, 5)


def test_a_head_is_not_looked_for_in_a_batch_the_model_cannot_take() -> None:
    adapter = fretta.adapt(build("resnet-like"), "tent")
    adapter(GOOD)  # needs no head
    before = adapter.state_dict()
    with pytest.raises(InputError, match="first convolution expects 3"):
        adapter.features(GOOD[:, :1])
    assert same(adapter.state_dict(), before)


# ---- models ------------------------------------------------------------------------------------


class Output:
    """As Hugging Face returns it."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


@dataclass
class Answer:
    scores: Tensor
    loss: Tensor | None = None


Pair = namedtuple("Pair", "scores hidden")

LOGITS_SOMEWHERE = [
    Output,
    Answer,
    lambda y: {"logits": y, "aux": y},
    lambda y: {"out": y, "loss": y.mean(), "attention": y[:, None, None]},
    lambda y: {"out": y, "features": y @ torch.ones(CLASSES, 3)},
    lambda y: [y],
    lambda y: (y.mean(), y),
    lambda y: Pair(y, y),
]


@pytest.mark.parametrize("output", LOGITS_SOMEWHERE)
def test_logits_are_found_in_what_a_model_returns(output: Any) -> None:
    plain, inside = fretta.adapt(build("resnet-like"), "g-fret"), Wrapped(output).eval()
    adapter = fretta.adapt(inside, "g-fret")
    for x in batches(6, 6):
        assert torch.equal(adapter(x), plain(x))
    assert adapter.model.head_name == "net.fc"
    module = adapter.export()
    with torch.no_grad():
        assert torch.equal(module(x), adapter.predict(x))
    twin = fretta.adapt(inside, "g-fret")
    twin.load_state_dict(adapter.state_dict())
    with torch.no_grad():  # exported before it has seen a batch
        assert torch.equal(twin.export()(x), adapter.predict(x))
    assert list(adapter.export(statistics=[x]).state_dict()) == list(inside.state_dict())


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda y: (y, y), r"tuple with 0: shape \(6, 5\), 1: shape \(6, 5\).*net\(x\)\[0\]"),
        (lambda y: {"out": y, "aux": y}, r"'out': shape.*'aux': shape.*wrap it"),
        (lambda y: {"pooler_output": y, "n": 3}, r"'pooler_output': shape \(6, 5\), 'n': a int"),
        (lambda y: (), r"returned a tuple: no tensor"),
        (lambda y: "logits", r"returned a str: no tensor"),
        (lambda y: y[:, :, None, None].expand(-1, -1, 4, 4), r"shape \(6, 5, 4, 4\)"),
        (lambda y: y[:, :1], r"shape \(6, 1\)"),
    ],
)
def test_outputs_that_are_not_logits(output: Any, message: str) -> None:
    adapter = fretta.adapt(Wrapped(output), "tent")
    with pytest.raises(ModelError, match=message):
        adapter(GOOD)


def test_a_named_head_tells_logits_from_features() -> None:
    model = Wrapped(lambda y: (y @ torch.ones(CLASSES, 7), y))
    with pytest.raises(ModelError, match="several tensors"):
        fretta.adapt(model, "tent")(GOOD)
    expected = fretta.adapt(build("resnet-like"), "tent")(GOOD)
    assert torch.equal(fretta.adapt(model, "tent", head="net.fc")(GOOD), expected)


def test_the_place_of_the_logits_is_looked_for_once() -> None:
    """A side output that happens to have as many rows as a later batch changes nothing."""
    adapter = fretta.adapt(Wrapped(lambda y: (y, torch.zeros(4, 4))), "bn")
    assert adapter(GOOD).shape == (6, CLASSES)
    assert adapter(GOOD[:4]).shape == (4, CLASSES)


class TwoHeads(nn.Module):
    """As in a distilled transformer: the logits are the mean of two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.body = build("resnet-like")
        self.body.fc = nn.Identity()
        self.a, self.b = nn.Linear(16, CLASSES), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        z = self.body(x)
        return (self.a(z) + self.b(z)) / 2


def test_two_candidate_heads() -> None:
    adapter = fretta.adapt(TwoHeads(), "g-fret")
    with pytest.raises(HeadError, match=r"2 candidate heads, 'a', 'b'.*head='a'"):
        adapter(GOOD)
    named = fretta.adapt(TwoHeads(), "g-fret", head="b")
    assert named(GOOD).shape == (6, CLASSES)
    assert named.model.head_name == "b"
    fretta.adapt(TwoHeads(), "tent")(GOOD)  # needs no head


def test_unknown_head_lists_linear_layers() -> None:
    with pytest.raises(HeadError, match=r"head='classifier' is not a module.*'fc'"):
        fretta.adapt(build("resnet-like"), "g-fret", head="classifier")
    adapter = fretta.adapt(build("resnet-like"), "g-fret", head="layer4")
    with pytest.raises(HeadError, match="enters the head 'layer4'"):
        adapter(GOOD)


def test_convolutional_heads() -> None:
    """After pooling a 1×1 convolution is a linear layer; before it, it has no (N, d) embedding."""
    body = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()]
    pool = nn.AdaptiveAvgPool2d(1)
    linear, conv = nn.Linear(4, 5), nn.Conv2d(4, 5, 1)
    conv.weight.data, conv.bias.data = linear.weight.data[:, :, None, None], linear.bias.data
    for key in ("g-fret", "s-fret", "tsd"):
        as_conv = fretta.adapt(nn.Sequential(*body, pool, conv, nn.Flatten()).double(), key)
        as_linear = fretta.adapt(nn.Sequential(*body, pool, nn.Flatten(), linear).double(), key)
        for x in batches(6, 6):
            torch.testing.assert_close(
                as_conv(x.double()), as_linear(x.double()), atol=TIGHT, rtol=TIGHT
            )
    before_pooling = nn.Sequential(*body, conv, pool, nn.Flatten()).float()
    with pytest.raises(HeadError, match=r"shape \(2, 4, 30, 30\) enters the head '3'.*'tent'"):
        fretta.adapt(before_pooling, "g-fret", head="3")(GOOD)


def test_no_norm_layer() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    with pytest.raises(NeedError, match="Sequential has none") as refused:
        fretta.adapt(net)
    named = re.findall(r"'([\w-]+)'", str(refused.value))
    assert named == ["source", "tsd"]
    for key in named:  # what it names does work
        assert fretta.adapt(net, key)(GOOD).shape == (len(GOOD), 5)
    with pytest.warns(FrettaWarning, match="no batch-norm layer, so this equals 'source'"):
        out = fretta.adapt(net, "bn")(GOOD)
    assert torch.equal(out, fretta.adapt(net, "source")(GOOD))


# ---- arguments ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "tnet"}, "unknown method 'tnet'; did you mean 'tent'"),
        ({"method": 3}, "method is a int"),
        (
            {"method": "g-fret", "lamda": 1, "k": 2},
            r"no hyper-parameter 'k', 'lamda'; it has .*lam, k1",
        ),
        ({"method": "source", "lr": 1}, "no hyper-parameter 'lr'; it has steps"),
        ({"method": "tent", "lr": -1.0}, "lr=-1.0"),
        ({"method": "tent", "optimizer": "adamw"}, "optimizer='adamw'"),
        ({"method": "tent", "momentum": 1.0}, "momentum=1.0"),
        (
            {"method": "g-fret", "variant": "mine"},
            "variant 'mine' is unknown; choose from paper, released",
        ),
        ({"method": "g-fret", "k2": 0.0}, "k2=0.0"),
        ({"method": "g-fret", "graph": "cosine"}, "graph='cosine'.*'raw' or 'unit'"),
        (
            {"method": "g-fret", "l_r_a": False, "l_r_r": False, "l_p_a": False, "l_p_r": False},
            "all four",
        ),
        ({"method": "bn", "alpha": 1.5}, "alpha=1.5"),
        ({"method": "tipi", "epsilon": 0.0}, "epsilon=0.0"),
        ({"method": "tea", "reinit": 2.0}, "reinit=2.0"),
        ({"method": "tent", "steps": 0}, "steps=0"),
        ({"method": "tent", "lr": "abc"}, "lr='abc' cannot work; a finite float"),
        ({"method": "tent", "lr": float("inf")}, "lr=inf"),
        ({"method": "g-fret", "k1": 2.5}, "k1=2.5 cannot work; a finite int"),
        ({"method": "g-fret", "k1": True}, "k1=True"),
        ({"method": "g-fret", "l_r_a": 1}, "l_r_a=1 cannot work; a finite bool"),
        ({"method": "sar", "rho": -1.0}, "rho=-1.0"),
        ({"method": "tent", "predict": "now"}, "predict='now'"),
        ({"method": "tent", "reset_every": 0}, "reset_every=0"),
        ({"method": "tent", "reset_every": True}, "reset_every=True"),
        ({"method": "tent", "episodic": 1}, "episodic=1 cannot work"),
        ({"method": "memo", "prior_strength": "16"}, "prior_strength='16' cannot work; a finite"),
        ({"method": "memo", "prior_strength": float("nan")}, "prior_strength=nan"),
        ({"method": "tent", "layout": "contiguous"}, r"fretta\.Compute\(layout"),
    ],
)
def test_arguments_that_cannot_work(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fretta.adapt(build("resnet-like"), **arguments)


def test_none_is_a_value_where_the_type_says_so() -> None:
    """Also where it is not the default."""
    assert fretta.adapt(build("resnet-like"), "memo", prior_strength=None).ready is False
    with pytest.raises(ConfigError, match="momentum=None cannot work; a finite float"):
        fretta.adapt(build("resnet-like"), "memo", momentum=None)


def test_objects_are_taken_apart_in_images_only() -> None:
    net = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, CLASSES))
    x = torch.randn(6, 4)
    with pytest.raises(InputError, match=r"shape \(6, 4\); deyo .*\(N, C, H, W\).*destroy="):
        fretta.adapt(net, "deyo")(x)
    out = fretta.adapt(net, "deyo", destroy=lambda x: x.flip(1), e_margin=0.999)(x)
    assert out.shape == (6, CLASSES)


@pytest.mark.parametrize("mask", [torch.eye(3), torch.ones(16, 15), torch.triu(torch.ones(16, 16))])
def test_masks_that_do_not_fit(mask: Tensor) -> None:
    adapter = fretta.adapt(build("resnet-like"), "g-fret", mask=mask)
    with pytest.raises(ConfigError, match=r"16 features and needs a symmetric \(16, 16\)"):
        adapter(GOOD)


def test_tipi_wants_to_know_the_preprocessing() -> None:
    with pytest.warns(FrettaWarning, match="std="):
        fretta.adapt(build("resnet-like"), "tipi")(GOOD)
    with pytest.raises(ConfigError, match="2 values, the input 3 channels"):
        fretta.adapt(build("resnet-like"), "tipi", std=(0.1, 0.2))(GOOD)
    fretta.adapt(build("timm-resnet18"), "tipi")(GOOD)  # timm models know it: no warning


def test_models_and_sources_that_cannot_work() -> None:
    with pytest.raises(ModelError, match=r"torch\.nn\.Module"):
        fretta.adapt(lambda x: x, "tent")  # type: ignore[arg-type]
    with pytest.raises(NeedError, match="source= is empty"):
        fretta.adapt(build("resnet-like"), "eata", source=[])
    with pytest.raises(InputError, match="uint8"):
        fretta.adapt(build("resnet-like"), "eata", source=[GOOD.byte()])
    net = build("resnet-like")
    net.cache = net.fc.weight * 1  # a non-leaf tensor: deepcopy refuses it
    with pytest.raises(ModelError, match="inplace=True"):
        fretta.adapt(net, "tent")
    fretta.adapt(net, "tent", inplace=True)(GOOD)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(ModelError, match="scripted"):
        fretta.adapt(scripted, "tent")
    half = fretta.adapt(build("resnet-like").half(), "tent")
    with pytest.raises(NeedError, match=r"float16.*autocast"):
        half(GOOD.half())
    with pytest.warns(FrettaWarning, match="probabilities, not logits"):
        fretta.adapt(Wrapped(lambda y: y.softmax(1)), "tent")(GOOD)


@pytest.mark.parametrize(
    ("key", "values", "message"),
    [
        ("eta", {"variant": "released"}, "no entropy exceeds ln C"),
        ("eta", {"variant": "released"}, "nearly every sample counts as redundant"),
        ("eta", {"e_margin": 0.0}, "removes every sample"),
        ("eta", {"d_margin": 1.0}, "can never filter"),
        ("sar", {"variant": "released"}, "no entropy exceeds ln C"),
        ("sar", {"reset_threshold": 2.0}, "reset after every batch"),
    ],
)
def test_filters_that_never_or_always_fire(key: str, values: dict[str, Any], message: str) -> None:
    with pytest.warns(FrettaWarning) as caught:
        fretta.adapt(build("resnet-like"), key, **values)(GOOD)
    assert any(message in str(w.message) for w in caught)
    fretta.adapt(build("resnet-like"), key)(GOOD)  # the defaults: a warning would be an error
