"""The label-free estimate: by hand, its bound, the collapse trap, its interval, its state."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from fretta.errors import ConfigError, InputError, StateError
from fretta.estimate import Estimator, combine, estimate
from fretta.estimate.estimator import BLOCKS
from fretta.estimate.sums import CONFUSED, DOUBT, FLATTEN, SLACK, dominant_class
from fretta.estimate.verdict import estimate_text, verdict


def logits_of(rows: list[list[float]]) -> Tensor:
    """Logits whose softmax is these probabilities."""
    return torch.tensor(rows, dtype=torch.float64).log()


def drawn(
    n: int, classes: int, scale: float, seed: int
) -> tuple[Tensor, Tensor, Tensor, torch.Generator]:
    """Two calibrated models: labels are drawn from the posterior both see with other noise.

    Both observe e_y · scale + noise; with unit normal noise, scale times what is seen are the
    logits of the posterior under balanced classes, so either model is calibrated.
    """
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (n,), generator=g)
    clean = torch.nn.functional.one_hot(y, classes).double()
    source = 1.0 * (1.0 * clean + torch.randn(n, classes, generator=g, dtype=torch.float64))
    adapted = scale * (scale * clean + torch.randn(n, classes, generator=g, dtype=torch.float64))
    return source, adapted, y, g


def test_labels_are_in_no_signature() -> None:
    for call in (estimate, Estimator.__init__, Estimator.update):
        names = set(inspect.signature(call).parameters)
        assert not names & {"y", "label", "labels", "target", "targets", "truth"}


def test_by_hand_without_any_cap() -> None:
    # two classes, each called as often as it may be: accuracy is mean confidence
    source = logits_of([[0.6, 0.4], [0.4, 0.6], [0.6, 0.4], [0.4, 0.6]])
    adapted = logits_of([[0.9, 0.1], [0.1, 0.9], [0.2, 0.8], [0.8, 0.2]])
    found = estimate(source, adapted)
    assert found.source == pytest.approx(0.6)
    assert found.disagreement == 0.5
    assert found.change == pytest.approx((0.9 + 0.9 + 0.8 + 0.8) / 4 - 0.6)
    assert found.adapted == pytest.approx(found.source + found.change)
    assert (found.samples, found.method) == (4, "capacity")


def test_by_hand_with_a_known_prior() -> None:
    # the adapted model calls 100 of 100 images class 0, which holds a quarter of them
    n = 100
    source = logits_of([[0.7, 0.3]] * 25 + [[0.3, 0.7]] * 75)
    adapted = logits_of([[0.99, 0.01]] * n)
    found = estimate(source, adapted, prior=[0.25, 0.75])
    cap = 0.25 + SLACK * math.sqrt(0.25 * 0.75 / n)
    assert found.source == pytest.approx(0.7)
    assert found.adapted == pytest.approx(cap)
    assert found.change == pytest.approx(cap - 0.7)
    assert found.helps is False


def test_by_hand_with_the_flattened_prior() -> None:
    n = 200
    source = logits_of([[0.8, 0.2]] * 100 + [[0.2, 0.8]] * 100)
    adapted = logits_of([[0.95, 0.05]] * n)
    shares = np.array([0.75, 0.25]) ** FLATTEN
    share = float(shares[0] / shares.sum())
    cap = share + SLACK * math.sqrt(share * (1 - share) / n)
    assert estimate(source, adapted).adapted == pytest.approx(cap)


def test_temperature_divides_logits() -> None:
    source = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    found = estimate(source, source, temperature=2.0)
    assert found.source == pytest.approx(math.e / (1 + math.e))


def test_equal_predictions_change_nothing() -> None:
    source, _, _, _ = drawn(300, 5, 2.0, 0)
    found = estimate(source, 3 * source)  # far more confident, same answers
    assert (found.change, found.low, found.high, found.disagreement) == (0, 0, 0, 0)
    assert found.helps is None


@pytest.mark.parametrize("seed", range(20))
def test_the_disagreement_bounds_everything(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    batches = [torch.randn(int(n), 6, generator=g) for n in torch.randint(1, 40, (7,), generator=g)]
    scale = 10 ** float(torch.empty(1).uniform_(-2, 2, generator=g))
    mix = float(torch.rand(1, generator=g))
    adapted = [scale * (mix * b + torch.randn(b.shape, generator=g)) for b in batches]
    found = estimate(batches, adapted)
    differ = torch.cat(batches).argmax(1) != torch.cat(adapted).argmax(1)
    d = float(differ.double().mean())
    assert found.disagreement == pytest.approx(d)
    assert -d - 1e-12 <= found.low <= found.change <= found.high <= d + 1e-12
    assert 0 <= found.source <= 1
    assert 0 <= found.adapted <= 1


@pytest.mark.parametrize("classes", [2, 10, 200])
def test_a_collapsed_model_is_bad_however_confident(classes: int) -> None:
    source, _, _, _ = drawn(1000, classes, 1.0, classes)
    source = 3 * source  # a source model with confident, varied answers
    collapsed = torch.zeros(1000, classes)
    collapsed[:, 0] = 50.0
    assert float(collapsed.softmax(1).amax(1).mean()) > 0.999  # confidence alone says: perfect
    found = estimate(source.split(50), collapsed.split(50))
    assert found.helps is False
    assert found.collapsed
    assert found.adapted < max(0.3, 0.75 if classes == 2 else 0)
    assert found.change < -0.1


def test_a_collapsed_source_model_does_not_count_as_reference() -> None:
    _, adapted, _, _ = drawn(1000, 10, 3.0, 1)
    collapsed = torch.zeros(1000, 10)
    collapsed[:, 3] = 5.0
    found = estimate(collapsed.split(50), adapted.split(50))
    assert found.helps is True
    assert not found.collapsed


def test_no_finite_logits_count_as_wrong() -> None:
    source, _, _, _ = drawn(64, 4, 2.0, 2)
    broken = torch.full_like(source, math.nan)
    found = estimate(source, broken)
    assert found.adapted == 0
    assert found.disagreement == 1
    assert found.helps is False
    assert found.collapsed


def test_the_interval_holds_on_calibrated_models() -> None:
    """At least as often as it says, and the estimate is close where models are calibrated."""
    held, errors = 0, []
    for seed in range(100):
        source, adapted, y, _ = drawn(512, 5, [0.6, 1.0, 1.5, 2.0][seed % 4], seed)
        found = estimate(source.split(32), adapted.split(32))
        true = float((adapted.argmax(1) == y).double().mean())
        true -= float((source.argmax(1) == y).double().mean())
        held += found.low <= true <= found.high
        errors.append(abs(found.change - true))
    assert held >= 90
    assert np.mean(errors) < 0.03


def test_the_interval_follows_level_and_images() -> None:
    source, adapted, _, _ = drawn(4096, 5, 1.2, 3)

    def width(n: int, level: float) -> float:
        found = estimate(source[:n].split(32), adapted[:n].split(32), level=level)
        return found.high - found.low

    assert width(512, 0.5) < width(512, 0.9) < width(512, 0.99)
    assert width(4096, 0.9) < width(64, 0.9)


def test_answers_alike_within_batches_must_stay_so() -> None:
    """One class per batch: whoever spreads such a batch over all classes is wrong."""
    g = torch.Generator().manual_seed(0)
    classes = [b % 4 for b in range(20)]
    source = [2 * torch.randn(32, 4, generator=g) for _ in classes]
    for batch, k in zip(source, classes, strict=True):
        batch[:, k] += 4
    spread = [4 * torch.randn(32, 4, generator=g) for _ in classes]
    shuffled = torch.cat(source)[torch.randperm(640, generator=g)].split(32)
    found, unordered = estimate(source, spread), estimate(shuffled, spread)
    assert found.change < unordered.change - 0.1
    assert found.helps is False


def test_state_round_trip_and_constant_memory() -> None:
    source, adapted, _, _ = drawn(3200, 5, 1.5, 4)
    whole, first = Estimator(), Estimator()
    for a, b in zip(source.split(8), adapted.split(8), strict=True):
        whole.update(a, b)
    pieces = list(zip(source.split(8), adapted.split(8), strict=True))
    for a, b in pieces[:123]:
        first.update(a, b)
    second = Estimator()
    second.load_state_dict(first.state_dict())
    for a, b in pieces[123:]:
        second.update(a, b)
    assert second.result() == whole.result()
    assert whole.samples == 3200
    sizes = {e: len(e.state_dict()["sums"]) for e in (first, whole)}
    assert all(BLOCKS // 2 <= size <= BLOCKS for size in sizes.values())
    whole.reset()
    assert whole.samples == 0


def test_states_that_do_not_fit_change_nothing() -> None:
    source, adapted, _, _ = drawn(64, 5, 1.5, 5)
    estimator = Estimator()
    estimator.update(source, adapted)
    before = estimator.result()
    with pytest.raises(StateError, match="temperature"):
        estimator.load_state_dict(Estimator(temperature=2.0).state_dict())
    with pytest.raises(StateError, match="format"):
        estimator.load_state_dict({"format": 0})
    assert estimator.result() == before


def test_combine_weighs_by_images() -> None:
    source, adapted, _, _ = drawn(300, 5, 2.0, 6)
    one, other = estimate(source[:200], adapted[:200]), estimate(source[200:], source[200:])
    both = combine([one, other])
    assert both.samples == 300
    assert both.change == pytest.approx(one.change * 2 / 3)
    assert both.high == pytest.approx(one.high * 2 / 3)
    assert combine([one]) == one
    with pytest.raises(InputError, match="nothing to combine"):
        combine([])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"level": 1.0}, "level=1.0"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"prior": [-1.0, 2.0]}, "prior="),
        ({"prior": [0.0, 0.0]}, "prior="),
    ],
)
def test_bad_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Estimator(**settings)  # type: ignore[arg-type]


def test_bad_logits() -> None:
    estimator = Estimator()
    with pytest.raises(InputError, match="no batch"):
        estimator.result()
    with pytest.raises(InputError, match="same shape"):
        estimator.update(torch.zeros(4, 3), torch.zeros(3, 3))
    with pytest.raises(InputError, match="not finite"):
        estimator.update(torch.full((4, 3), math.inf), torch.zeros(4, 3))
    estimator.update(torch.zeros(4, 3), torch.zeros(4, 3))
    with pytest.raises(InputError, match="had 3"):
        estimator.update(torch.zeros(4, 5), torch.zeros(4, 5))
    with pytest.raises(InputError, match="prior has 2"):
        estimate(torch.zeros(4, 3), torch.zeros(4, 3), prior=[1.0, 1.0])
    with pytest.raises(InputError, match="2 batches"):
        estimate([torch.zeros(4, 3)] * 2, [torch.zeros(4, 3)])


# ---- uneven classes -----------------------------------------------------------------------------


def uneven_stream(share: float, seed: int = 0) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """(source, adapted, labels): class 3 of 10 holds `share`; a good source model, and one that
    evens out its answers in every batch of 64, as batch statistics do."""
    g = torch.Generator().manual_seed(seed)
    p = torch.full((10,), (1 - share) / 9)
    p[3] = share
    y = torch.multinomial(p, 512, replacement=True, generator=g)
    source = 4 * torch.nn.functional.one_hot(y, 10) + torch.randn(512, 10, generator=g)
    batches = list(source.split(64))
    adapted = [b - 0.8 * b.mean(0) + 0.8 * torch.randn(b.shape, generator=g) for b in batches]
    return batches, adapted, y


@pytest.mark.parametrize("share", [0.5, 0.7, 0.8])
def test_uneven_classes_are_never_said_to_help(share: float) -> None:
    source, adapted, y = uneven_stream(share)
    right = [float((torch.cat(x).argmax(1) == y).double().mean()) for x in (source, adapted)]
    assert right[1] < right[0] - 0.1  # the truth: it hurts
    found = estimate(source, adapted)
    assert found.change > 0.05  # capacity alone is fooled
    assert found.helps is None
    assert found.low == -found.disagreement
    assert found.uneven is not None
    assert found.uneven.number == 3
    assert found.uneven.share == pytest.approx(share, abs=0.1)
    names = [*"abc", "cat", *"defghi"]
    share_text = f"{100 * found.uneven.share:.0f} % predicted 'cat'"
    assert share_text in estimate_text(found, names)
    assert estimate_text(found, names).startswith("cannot tell")
    # whoever knows the shares gets an answer
    prior = [(1 - share) / 9] * 10
    prior[3] = share
    told = estimate(source, adapted, prior=prior)
    assert told.uneven is None
    assert told.helps is False


def test_a_biased_source_model_does_not_make_a_balanced_stream_uneven() -> None:
    """Under shift a source model may call half of a balanced stream by one name."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(512) % 10
    clean = torch.nn.functional.one_hot(y, 10)
    source = 2 * clean + torch.randn(512, 10, generator=g)
    source[:, 3] += 2.5
    assert float((source.argmax(1) == 3).double().mean()) > 0.5
    adapted = 6 * clean + torch.randn(512, 10, generator=g)
    found = estimate(source.split(64), adapted.split(64))
    assert found.uneven is None
    assert found.helps is True


def test_the_rule_by_hand() -> None:
    """Far more than 1/C by both; or by the source model, if the adapted one is less sure."""
    n, even = 400, 0.25
    much = n * (even + CONFUSED + DOUBT * math.sqrt(even * (1 - even) / n))
    low, high = math.floor(much), math.floor(much) + 1

    def counts(first: int) -> np.ndarray:
        rest = n - first
        return np.array([first, rest // 3, rest // 3, rest - 2 * (rest // 3)], float)

    assert dominant_class(counts(high), counts(low), surer=True) is None
    assert dominant_class(counts(low), counts(high), surer=True) is None
    found = dominant_class(counts(200), counts(high), surer=True)
    assert found is not None
    assert (found.number, found.share) == (0, 0.5)
    little = math.floor(much - n * CONFUSED)
    assert dominant_class(counts(high), counts(little + 1), surer=False) is not None
    assert dominant_class(counts(high), counts(little), surer=False) is None


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_a_balanced_sample_is_not_called_uneven(classes: int) -> None:
    """Two sampled predictions of the same balanced labels: how often chance alone raises it."""
    random, alarms = np.random.default_rng(0), 0
    for _ in range(200):
        counts = np.bincount(random.integers(0, classes, 256), minlength=classes).astype(float)
        alarms += dominant_class(counts, counts, surer=True) is not None
    assert alarms <= 20  # one standard deviation and a twentieth: 5 % or less, for two classes most


def test_a_collapse_is_called_that_and_not_uneven() -> None:
    source, _, y = uneven_stream(0.5)
    collapsed = [torch.nn.functional.one_hot(torch.full((len(b),), 3), 10) * 9.0 for b in source]
    found = estimate(source, collapsed)
    assert found.collapsed
    assert found.uneven is None
    assert verdict(found) == "collapsed"
    assert len(y) == 512


def test_an_uneven_domain_is_no_gain_among_others() -> None:
    source, adapted, _ = uneven_stream(0.8)
    uneven = estimate(source, adapted)
    _, good, _, _ = drawn(512, 10, 3.0, 1)
    biased = torch.zeros(512, 10)
    biased[:, 0] = 3.0
    helps = estimate(biased.split(64), good.split(64))
    assert helps.helps is True
    both = combine([uneven, helps])
    assert both.low == pytest.approx((uneven.low + helps.low) / 2)
    assert both.uneven == uneven.uneven
    assert combine([uneven, *[helps] * 9]).helps is True  # nine sound domains outweigh it


def test_all_predictions_tell_what_a_sample_may_miss() -> None:
    """The source model saw 40 of 400 images; on these the adapted model names class 3 five times,
    which is little, and on all of them 17 % of the time, which is not."""
    source = torch.full((40, 10), 0.0)
    source[:, 3] = 3.0
    source[30:] += 3 * torch.eye(10) - 3 * torch.eye(10)[3]
    adapted = torch.zeros(40, 10)
    named = torch.tensor([3] * 5 + [c for c in range(10) if c != 3] * 4)[:40]
    adapted[range(40), named] = 1.5
    estimator = Estimator()
    for pair in zip(source.split(10), adapted.split(10), strict=True):
        estimator.update(*pair)
    assert estimator.result().uneven is None
    everywhere = [37] * 10
    everywhere[3] = 67
    found = estimator.result(everywhere)
    assert found.uneven is not None
    assert found.uneven.number == 3
    assert found.helps is not True
