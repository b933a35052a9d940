"""Output stages behind any method, and the parts they and the new methods are made of, by hand."""

from __future__ import annotations

import io
import math

import pytest
import torch

import fretta
from fretta.errors import ConfigError, HeadError
from fretta.parts.destroy import occluded, ordered_patches, ordered_pixels
from fretta.parts.laplacian import adjusted, affinity
from fretta.parts.prior import smoothed_prior, times_prior, with_prior
from fretta.parts.tensors import pull
from nets import TIGHT, Wrapped, batches, build, same

pytestmark = pytest.mark.filterwarnings("ignore::fretta.errors.FrettaWarning")


def test_prior_by_hand() -> None:
    # σ: (3/4, 1/4) and (1/4, 3/4) twice; mean (5/12, 7/12); γ = (1/2) / (7/12) = 6/7
    logits = math.log(3) * torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    prior = torch.tensor([5 / 12 + 6 / 7, 7 / 12 + 6 / 7]) / (1 + 12 / 7)
    torch.testing.assert_close(smoothed_prior(logits), prior)
    weighed = torch.tensor([[3.0, 1.0], [1.0, 3.0], [1.0, 3.0]]) * prior
    probabilities = weighed / weighed.sum(1, keepdim=True)
    torch.testing.assert_close(with_prior(logits).softmax(1), probabilities)
    torch.testing.assert_close(times_prior(logits), logits * prior)
    balanced = torch.eye(4) * 5
    assert torch.equal(with_prior(balanced).argmax(1), torch.arange(4))
    torch.testing.assert_close(smoothed_prior(balanced), torch.full((4,), 0.25))


def test_affinities_by_hand() -> None:
    z = torch.tensor([[2.0, 0.0], [0.0, 1.0], [-3.0, 0.0]])  # of unit length: distances √2, √2, 2
    assert affinity(z, "linear").tolist() == [[1, 0, -1], [0, 1, 0], [-1, 0, 1]]
    near = affinity(z, "knn", 1)
    assert near.sum(1).tolist() == [1, 1, 1]
    assert near.diagonal().sum() == 0
    assert near[0].tolist() == near[2].tolist() == [0, 1, 0]
    # the second nearest, itself the first: √2 each, so s² = 2
    w = [[1, math.exp(-0.5), math.exp(-1)], [math.exp(-0.5), 1, math.exp(-0.5)]]
    torch.testing.assert_close(affinity(z, "rbf", 2)[:2], torch.tensor(w))
    for kind in ("rbf", "knn", "linear"):  # alone, or among its twins
        assert torch.isfinite(affinity(z[:1], kind)).all()
        assert torch.isfinite(affinity(z[:1].expand(4, -1), kind)).all()


def test_laplacian_adjustment() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 0.4]]).double()
    alone = adjusted(logits, torch.zeros(2, 2).double())
    torch.testing.assert_close(alone.softmax(1), logits.softmax(1), atol=1e-9, rtol=0)
    W = torch.tensor([[0.0, 1.5], [1.5, 0.0]]).double()
    Y = adjusted(logits, W).softmax(1)  # a fixed point; the unsure one follows the sure one
    again = (logits.log_softmax(1) + W @ Y).softmax(1)
    torch.testing.assert_close(Y, again, atol=1e-4, rtol=0)
    assert Y.argmax(1).tolist() == [0, 0]


def test_pull() -> None:
    ours = {"a": torch.tensor([1.0]), "b": torch.tensor([4.0, 0.0])}
    pull(ours, {"a": torch.tensor([3.0]), "b": torch.zeros(2), "c": torch.ones(1)}, 0.25)
    assert [t.tolist() for t in ours.values()] == [[1.5], [3.0, 0.0]]


def test_objects_are_destroyed() -> None:
    x = torch.arange(32.0).view(2, 1, 4, 4)
    order = torch.tensor([[3, 2, 1, 0], [0, 1, 2, 3]])
    patched = ordered_patches(x, 2, order)
    first = [[10, 11, 8, 9], [14, 15, 12, 13], [2, 3, 0, 1], [6, 7, 4, 5]]
    assert patched[0, 0].tolist() == first
    assert torch.equal(patched[1], x[1])
    turned = ordered_pixels(x, torch.arange(16).flip(0))
    assert torch.equal(turned, x.flip(2, 3))
    hidden = occluded(x, 2, 1, 1)
    assert hidden[0, 0, 1:3, 1:3].tolist() == [[7.5, 7.5], [7.5, 7.5]]
    assert torch.equal(hidden[0, 0, 0], x[0, 0, 0])
    odd = ordered_patches(torch.rand(2, 3, 7, 9), 4, torch.arange(16).flip(0).expand(2, -1))
    assert odd.shape == (2, 3, 7, 9)


# ---- behind any method -------------------------------------------------------------------------


@pytest.mark.parametrize("net", ["resnet-like", "vit-like"])
@pytest.mark.parametrize("key", ["source", "tent", "tsd", "tipi"])
def test_a_stage_changes_what_is_returned_and_nothing_else(net: str, key: str) -> None:
    model = build(net).double()
    plain = fretta.adapt(model, key)
    stream = [x.double() for x in batches(6, 6, 1)]
    outs = []
    for x in stream:
        z, logits = plain.features(x)
        if plain.timing == "before":  # of this forward are the logits that a step returns
            outs.append(adjusted(logits, affinity(z)))
            plain(x)
        else:
            plain(x)
            z, logits = plain.features(x)
            outs.append(adjusted(logits, affinity(z)))
    a = fretta.adapt(model, key, output="lame")
    for x, wanted in zip(stream, outs, strict=True):
        torch.testing.assert_close(a(x), wanted, atol=TIGHT, rtol=0)
    assert same(a.state_dict()["running"], plain.state_dict()["running"])
    file = io.BytesIO()
    torch.save(a.state_dict(), file)
    file.seek(0)
    b = fretta.adapt(model, key, output="lame")
    b.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(b.predict(stream[0]), a.predict(stream[0]))
    with pytest.raises(ConfigError, match="output='none'"):
        a.export()


def test_lame_is_the_stage_behind_the_source_model() -> None:
    x = batches(6)[0]
    staged = fretta.adapt(build("resnet-like"), "source", output="lame")
    assert torch.equal(staged(x), fretta.adapt(build("resnet-like"), "lame")(x))


def test_a_stage_behind_memo_takes_the_features_of_images() -> None:
    """Its logits before an update are means over views; the affinities are of the images."""
    net, x = build("resnet-like").double(), batches(4)[0].double()
    plain = fretta.adapt(net, "memo", views=3, predict="before")
    logits, (z, _) = plain(x), plain.features(x)
    staged = fretta.adapt(net, "memo", views=3, predict="before", output="lame")
    torch.testing.assert_close(staged(x), adjusted(logits, affinity(z)), atol=TIGHT, rtol=0)
    assert not torch.allclose(staged(x), logits, atol=100 * TIGHT)


def test_what_roid_returns() -> None:
    x = batches(6)[0]
    net = build("resnet-like")
    logits = fretta.adapt(net, "roid", output="none")(x)
    assert torch.equal(fretta.adapt(net, "roid")(x), with_prior(logits))
    assert torch.equal(fretta.adapt(net, "roid", variant="released")(x), times_prior(logits))
    with pytest.raises(ConfigError, match="'prior'"):
        fretta.adapt(net, "roid", output="posterior")
    with pytest.raises(HeadError, match="head="):
        fretta.adapt(Wrapped(lambda y: y * 2.0), "tent", output="lame")(x)


def test_the_released_cmf_keeps_half_precision() -> None:
    a = fretta.adapt(build("resnet-like"), "cmf", variant="released")
    a(batches(6)[0])
    assert all(torch.equal(p, p.half().float()) for p in a.model.parameters())
    assert same(a.method.hidden, {n: t.half().float() for n, t in a.method.hidden.items()})


def test_filters_that_cannot_work_say_so() -> None:
    x = batches(6)[0]
    with pytest.warns(fretta.errors.FrettaWarning, match="no probability falls by more than 1"):
        fretta.adapt(build("resnet-like"), "deyo", plpd_margin=1.0).predict(x)
    with pytest.warns(fretta.errors.FrettaWarning, match="never removes"):
        fretta.adapt(build("resnet-like"), "deyo", e_margin=1.1).predict(x)
    with pytest.warns(fretta.errors.FrettaWarning, match="nearly every sample"):
        fretta.adapt(build("resnet-like"), "rdumb", variant="released").predict(x)
    with pytest.raises(ConfigError, match="without alpha"):
        fretta.adapt(build("resnet-like"), "bn", memory="moving", alpha=0.5)
