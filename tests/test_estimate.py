"""The label-free estimate: by hand, its bound, the collapse trap, its interval, its state."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from fretta.errors import ConfigError, InputError, StateError
from fretta.estimate import Estimator, Measured, combine, estimate
from fretta.estimate.estimator import BLOCKS
from fretta.estimate.shares import CONFUSED, DOUBT, SourceFacts, dominant_class, em_shares
from fretta.estimate.sums import FLATTEN, SLACK
from fretta.estimate.verdict import estimate_text, verdict


def logits_of(rows: list[list[float]]) -> Tensor:
    """Logits whose softmax is these probabilities."""
    return torch.tensor(rows, dtype=torch.float64).log()


def drawn(n: int, classes: int, scale: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of two calibrated models, and labels.

    Both observe e_y · scale + noise; with unit normal noise, scale times what is seen are the
    logits of the posterior under balanced classes, so either model is calibrated.
    """
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (n,), generator=g)
    clean = torch.nn.functional.one_hot(y, classes).double()
    source = 1.0 * (1.0 * clean + torch.randn(n, classes, generator=g, dtype=torch.float64))
    adapted = scale * (scale * clean + torch.randn(n, classes, generator=g, dtype=torch.float64))
    return source, adapted, y


def always(k: int, n: int, classes: int, logit: float) -> Tensor:
    """A collapsed model."""
    return logit * torch.eye(classes)[k].expand(n, classes)


def test_labels_are_in_no_signature() -> None:
    for call in (estimate, Estimator.__init__, Estimator.update):
        names = set(inspect.signature(call).parameters)
        assert not names & {"y", "label", "labels", "target", "targets", "truth"}


def test_by_hand() -> None:
    # two classes, each predicted as often as it may be: accuracy is mean confidence
    source = logits_of([[0.6, 0.4], [0.4, 0.6], [0.6, 0.4], [0.4, 0.6]])
    adapted = logits_of([[0.9, 0.1], [0.1, 0.9], [0.2, 0.8], [0.8, 0.2]])
    found = estimate(source, adapted)
    assert found.source == pytest.approx(0.6)
    assert found.disagreement == 0.5
    assert found.change == pytest.approx((0.9 + 0.9 + 0.8 + 0.8) / 4 - 0.6)
    assert found.adapted == pytest.approx(found.source + found.change)
    assert (found.samples, found.method) == (4, "capacity")
    # the adapted model predicts class 0 for all of 100 images; it holds a quarter of them
    source, adapted = logits_of([[0.7, 0.3]] * 25 + [[0.3, 0.7]] * 75), logits_of([[0.99, 0.01]])
    found = estimate(source, adapted.expand(100, 2), prior=[0.25, 0.75])
    cap = 0.25 + SLACK * math.sqrt(0.25 * 0.75 / 100)
    assert found.source == pytest.approx(0.7)
    assert found.adapted == pytest.approx(cap)
    assert found.change == pytest.approx(cap - 0.7)
    assert found.helps is False
    # without a prior: the flattened shares of both models' predictions
    source = logits_of([[0.8, 0.2]] * 100 + [[0.2, 0.8]] * 100)
    shares = np.array([0.75, 0.25]) ** FLATTEN
    share = float(shares[0] / shares.sum())
    cap = share + SLACK * math.sqrt(share * (1 - share) / 200)
    assert estimate(source, logits_of([[0.95, 0.05]] * 200)).adapted == pytest.approx(cap)
    # temperature divides logits
    source = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    assert estimate(source, source, temperature=2.0).source == pytest.approx(math.e / (1 + math.e))
    # far more confident, the same predictions
    found = estimate(source, 3 * source)
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
    source = 3 * drawn(1000, classes, 1.0, classes)[0]  # confident and varied
    found = estimate(source.split(50), always(0, 1000, classes, 50.0).split(50))
    assert found.helps is False
    assert found.collapsed
    assert verdict(found) == "collapsed"
    assert found.uneven is None
    assert found.adapted < (0.75 if classes == 2 else 0.3)
    assert found.change < -0.1


def test_a_collapsed_source_model_and_broken_logits() -> None:
    source, adapted, _ = drawn(1000, 10, 3.0, 1)
    found = estimate(always(3, 1000, 10, 3.0).split(50), adapted.split(50))
    assert found.helps is True
    assert not found.collapsed
    broken = estimate(source, torch.full_like(source, math.nan))  # counts as wrong
    assert (broken.adapted, broken.disagreement) == (0, 1)
    assert broken.helps is False
    assert broken.collapsed


def test_the_interval_holds_on_calibrated_models() -> None:
    """At least as often as it says, and the estimate is close where models are calibrated."""
    held, errors = 0, []
    for seed in range(100):
        source, adapted, y = drawn(512, 5, [0.6, 1.0, 1.5, 2.0][seed % 4], seed)
        found = estimate(source.split(32), adapted.split(32))
        true = float((adapted.argmax(1) == y).double().mean())
        true -= float((source.argmax(1) == y).double().mean())
        held += found.low <= true <= found.high
        errors.append(abs(found.change - true))
    assert held >= 90
    assert np.mean(errors) < 0.03


def test_the_interval_follows_level_and_images() -> None:
    source, adapted, _ = drawn(4096, 5, 1.2, 3)

    def width(n: int, level: float) -> float:
        found = estimate(source[:n].split(32), adapted[:n].split(32), level=level)
        return found.high - found.low

    assert width(512, 0.5) < width(512, 0.9) < width(512, 0.99)
    assert width(4096, 0.9) < width(64, 0.9)


def test_predictions_alike_within_batches_must_stay_so() -> None:
    """One class per batch: a model that spreads such a batch over all classes is wrong."""
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
    source, adapted, _ = drawn(3200, 5, 1.5, 4)
    full, first, second = Estimator(), Estimator(), Estimator()
    for number, pair in enumerate(zip(source.split(8), adapted.split(8), strict=True)):
        full.update(*pair)
        if number == 123:
            second.load_state_dict(first.state_dict())
        (first if number < 123 else second).update(*pair)
    assert second.result() == full.result()
    assert full.samples == 3200
    assert all(BLOCKS // 2 <= len(e.state_dict()["sums"]) <= BLOCKS for e in (first, full))
    before = full.result()
    with pytest.raises(StateError, match="temperature"):
        full.load_state_dict(Estimator(temperature=2.0).state_dict())
    with pytest.raises(StateError, match="format"):
        full.load_state_dict({"format": 0})
    assert full.result() == before
    full.reset()
    assert full.samples == 0


def test_combine_weighs_by_images() -> None:
    source, adapted, _ = drawn(300, 5, 2.0, 6)
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
    estimator, three = Estimator(), torch.zeros(4, 3)
    with pytest.raises(InputError, match="no batch"):
        estimator.result()
    estimator.update(three, three)
    for source, adapted, message in (
        (three, torch.zeros(3, 3), "same shape"),
        (three + math.inf, three, "not finite"),
        (torch.zeros(4, 5), torch.zeros(4, 5), "had 3"),
    ):
        with pytest.raises(InputError, match=message):
            estimator.update(source, adapted)
    with pytest.raises(InputError, match="prior has 2"):
        estimate(three, three, prior=[1.0, 1.0])
    with pytest.raises(InputError, match="2 batches"):
        estimate([three] * 2, [three])


# ---- uneven classes -----------------------------------------------------------------------------


def uneven_stream(share: float) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """(source, adapted, labels): class 3 of 10 holds `share`; a good source model, and one that
    evens out its predictions in every batch of 64, as batch statistics do."""
    g = torch.Generator().manual_seed(0)
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
    text = estimate_text(found, [*"abc", "cat", *"defghi"])
    assert text.startswith("cannot tell, classes look uneven: ")
    assert f"{100 * found.uneven.share:.0f} % predicted cat" in text
    # with known shares there is a verdict
    prior = [(1 - share) / 9] * 10
    prior[3] = share
    known = estimate(source, adapted, prior=prior)
    assert known.uneven is None
    assert known.helps is False
    # among other domains it is no gain, but nine sound ones outweigh it
    biased, (_, good, _) = always(0, 512, 10, 3.0), drawn(512, 10, 3.0, 1)
    helps = estimate(biased.split(64), good.split(64))
    both = combine([found, helps])
    assert both.low == pytest.approx((found.low + helps.low) / 2)
    assert both.uneven == found.uneven
    assert combine([found, *[helps] * 9]).helps is True


def test_a_biased_source_model_does_not_make_a_balanced_stream_uneven() -> None:
    """Under shift a source model may predict one class for half of a balanced stream."""
    g = torch.Generator().manual_seed(0)
    clean = torch.nn.functional.one_hot(torch.arange(512) % 10, 10)
    source = 2 * clean + torch.randn(512, 10, generator=g)
    source[:, 3] += 2.5
    assert float((source.argmax(1) == 3).double().mean()) > 0.5
    adapted = 6 * clean + torch.randn(512, 10, generator=g)
    found = estimate(source.split(64), adapted.split(64))
    assert found.uneven is None
    assert found.helps is True


def test_the_rule_for_uneven_classes() -> None:
    """Far more than 1/C by both; by the source model alone, if the adapted one is less sure."""
    n, even = 400, 0.25
    much = n * (even + CONFUSED + DOUBT * math.sqrt(even * (1 - even) / n))
    low, high = math.floor(much), math.floor(much) + 1

    def counts(first: int) -> np.ndarray:
        rest = n - first
        return np.array([first, rest // 3, rest // 3, rest - 2 * (rest // 3)], float)

    assert dominant_class(counts(high), counts(low), surer=True) is None
    assert dominant_class(counts(low), counts(high), surer=False) is None
    found = dominant_class(counts(200), counts(high), surer=True)
    assert found is not None
    assert (found.number, found.share) == (0, 0.5)
    # a less sure model proves nothing: uneven classes look like this with batch statistics
    assert dominant_class(counts(high), counts(n // 4), surer=False) is not None
    # two sampled predictions of the same balanced labels: chance alone seldom raises it
    random = np.random.default_rng(0)
    for classes in (2, 10, 1000):
        draws = (random.integers(0, classes, 256) for _ in range(200))
        sampled = [np.bincount(draw, minlength=classes).astype(float) for draw in draws]
        assert sum(dominant_class(c, c, surer=True) is not None for c in sampled) <= 20


def test_all_predictions_count_for_unevenness() -> None:
    """The source model saw 40 of 400 images; on these the adapted model predicts class 3 five
    times, which is little, and on all of them 25 % of the time, which is not."""
    source = always(3, 40, 10, 3.0).clone()
    source[30:] += 3 * torch.eye(10) - 3 * torch.eye(10)[3]
    adapted = torch.zeros(40, 10)
    named = torch.tensor([3] * 5 + [c for c in range(10) if c != 3] * 4)[:40]
    adapted[range(40), named] = 9.0
    estimator = Estimator()
    for pair in zip(source.split(10), adapted.split(10), strict=True):
        estimator.update(*pair)
    assert estimator.result().uneven is None
    found = estimator.result([*[33] * 3, 100, *[33] * 5, 36])
    assert found.uneven is not None
    assert found.uneven.number == 3
    assert found.helps is not True


def test_shares_by_em() -> None:
    """Two classes: 0 is right in 8 of 10, 1 in 9 of 10. 52 % predicted 0 means 60 % are of it:
    0.6 · 0.8 + 0.4 · 0.1."""
    confusion = np.array([[0.8, 0.2], [0.1, 0.9]])
    assert em_shares(np.array([52.0, 48.0]), confusion) == pytest.approx([0.6, 0.4], abs=1e-4)
    # more than any mixture explains: the end of the simplex, where the inverse would leave it
    assert em_shares(np.array([95.0, 5.0]), confusion) == pytest.approx([1, 0], abs=1e-4)


def test_labeled_source_images_tell_the_shares() -> None:
    source, adapted, _ = uneven_stream(0.7)
    g = torch.Generator().manual_seed(5)
    y = torch.randint(10, (500,), generator=g)
    logits = 4 * torch.nn.functional.one_hot(y, 10) + torch.randn(500, 10, generator=g)
    facts = SourceFacts.measure(zip(logits.split(100), y.split(100), strict=True))
    assert facts.images == 500
    counts = torch.cat(source).argmax(1).bincount(minlength=10).double().numpy()
    assert facts.shares(counts)[3] == pytest.approx(0.7, abs=0.04)
    known = estimate(source, adapted, source=facts)
    assert known.uneven is None
    assert not known.balanced
    assert known.helps is False
    # a source model that is less sure than it was has met a shift: a range again
    shifted = [b / 3 for b in source]
    found = estimate(shifted, adapted, source=facts)
    assert found.balanced
    assert found.low < known.low + 0.2 < 0 < found.high
    with pytest.raises(ConfigError, match="no labeled source images"):
        SourceFacts.measure([])
    with pytest.raises(InputError, match="one class number per image"):
        SourceFacts.measure([(logits, y + 1)])


def test_images_without_a_label_are_left_out() -> None:
    """By hand: one image of class 0 and two of class 1 are known, one of each is predicted 1."""
    logits = logits_of([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.6, 0.4]])
    y = torch.tensor([0, -1, 1, 1])
    facts = SourceFacts.measure([(logits, y), (logits, torch.full((4,), -1))])
    assert facts.images == 3
    # one image more per class, predicted right
    assert facts.confusion.tolist() == [[1, 0], pytest.approx([1 / 3, 2 / 3])]
    assert facts.confidence.tolist() == pytest.approx([(0.9 + 0.6) / 2, 0.7])
    with pytest.raises(ConfigError, match="no labeled source images"):
        SourceFacts.measure([(logits, torch.full((4,), -1))])
    with pytest.raises(InputError, match="3 labels up to 1 for logits"):
        SourceFacts.measure([(logits, y[1:])])


def test_a_class_that_cannot_be_is_no_broken_prediction() -> None:
    """Its logit is -inf: the estimate is that of the other classes. NaN is no prediction."""
    source = logits_of([[0.6, 0.4, 0.0], [0.4, 0.6, 0.0]] * 2)
    adapted = logits_of([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.2, 0.8, 0.0], [0.8, 0.2, 0.0]])
    assert torch.isinf(adapted[:, 2]).all()
    found = estimate(source, adapted, prior=[0.5, 0.5, 0.0])
    assert (found.source, found.disagreement) == (pytest.approx(0.6), 0.5)
    assert found.adapted == pytest.approx((0.9 + 0.9 + 0.8 + 0.8) / 4)
    broken = adapted.clone()
    broken[:2, 2] = math.nan
    assert estimate(source, broken, prior=[0.5, 0.5, 0.0]).disagreement == 1
    with pytest.raises(InputError, match="not finite"):
        estimate(broken, adapted)


# ---- measured -----------------------------------------------------------------------------------


def test_measured_by_hand() -> None:
    found = Measured(images=100, source_right=50, gained=20, lost=5, level=0.9)
    assert (found.source, found.adapted, found.change) == (0.5, 0.65, 0.15)
    # Agresti and Min: half an image in each cell, then Wald
    center, half = 15 / 102, 1.6449 * math.sqrt((20.5 + 5.5) - 15**2 / 102) / 102
    assert found.interval == pytest.approx((center - half, center + half), abs=1e-5)
    assert found.helps is True
    assert Measured(100, 50, 5, 20).helps is False
    assert Measured(100, 50, 9, 5).helps is None
    same = Measured(10, 5, 0, 0)
    assert (same.p, same.helps, same.change) == (1.0, None, 0.0)
    assert same.interval[0] == -same.interval[1] < 0
    text = str(Measured(512, 300, 160, 60))
    assert text.startswith("helps (measured): +19.5 points (+14.9 to +24.0)")
    assert "p < 0.001 on 512 labeled images" in text


@pytest.mark.parametrize(("gained", "lost"), [(0, 1), (3, 3), (20, 5), (160, 60), (5000, 4800)])
def test_the_exact_test_is_that_of_scipy(gained: int, lost: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binomtest(gained, gained + lost).pvalue
    assert Measured(20_000, 10_000, gained, lost).p == pytest.approx(expected, rel=1e-8)


def test_the_measured_interval_holds_as_often_as_it_says() -> None:
    """Over draws of 200 images with known chances of gain and loss."""
    random, held = np.random.default_rng(0), 0
    for _ in range(1000):
        gained, lost, _ = random.multinomial(200, [0.08, 0.04, 0.88])
        low, high = Measured(200, 100, int(gained), int(lost)).interval
        held += low <= 0.04 <= high
    assert held >= 880  # 900 are meant; the spread of 1,000 draws is 9.5
