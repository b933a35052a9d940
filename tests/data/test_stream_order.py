"""Orders, on numbers that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fretta.data.order import (
    Order,
    arrange,
    correlated,
    cut,
    first,
    long_tail,
    long_tail_counts,
    random_state,
    visits,
)
from fretta.errors import ConfigError

NAMES = ["a", "b", "c"]
LABELS = [np.arange(n) % 2 for n in (5, 3, 4)]
NONE = [None, None, None]


def test_parse() -> None:
    assert str(Order.parse("mixed + correlated+single_sample")) == "mixed+correlated+single-sample"
    assert str(Order.parse("long-tailed")) == "continual+long-tailed"
    assert Order.parse(["independent", "correlated"]) == Order("independent", correlated=True)
    for wrong in ("random", "continual+mixed", "correlated+correlated", ""):
        with pytest.raises(ConfigError, match="order"):
            Order.parse(wrong)


def test_continual_visits_each_domain_whole_and_in_turn() -> None:
    segments = arrange(Order(), NAMES, LABELS, NONE, 2, seed=0)
    assert [s.domain.tolist() for s in segments] == [[0] * 5, [1] * 3, [2] * 4]
    assert [sorted(s.index.tolist()) for s in segments] == [[*range(5)], [*range(3)], [*range(4)]]
    assert not any(s.reset for s in segments)


def test_independent_is_continual_with_resets() -> None:
    one = arrange(Order("continual"), NAMES, LABELS, NONE, 2, seed=4)
    two = arrange(Order("independent"), NAMES, LABELS, NONE, 2, seed=4)
    assert [s.index.tolist() for s in one] == [s.index.tolist() for s in two]
    assert all(s.reset for s in two)


def test_a_domain_has_the_same_order_beside_others() -> None:
    alone = arrange(Order(), ["c"], [LABELS[2]], [None], 2, seed=7)
    among = arrange(Order(), NAMES, LABELS, NONE, 2, seed=7)
    assert alone[0].index.tolist() == among[2].index.tolist()


def test_mixed_shuffles_everything_together() -> None:
    labels = [np.zeros(50, int), np.zeros(50, int)]
    (segment,) = arrange(Order("mixed"), ["a", "b"], labels, [None, None], 1, seed=0)
    pairs = set(zip(segment.domain.tolist(), segment.index.tolist(), strict=True))
    assert pairs == {(d, i) for d in range(2) for i in range(50)}
    assert 10 < segment.domain[:50].sum() < 40  # both domains in the first half


@pytest.mark.parametrize(
    "order", ["continual", "mixed", "continual+correlated", "mixed+long-tailed"]
)
def test_the_seed_changes_the_order_and_nothing_else(order: str) -> None:
    labels = [np.arange(60) % 3, np.arange(30) % 3]

    def stream(seed: int) -> list[tuple[int, int]]:
        segments = arrange(Order.parse(order), ["a", "b"], labels, [None] * 2, 3, seed, limit=20)
        return [
            pair for s in segments for pair in zip(s.domain.tolist(), s.index.tolist(), strict=True)
        ]

    assert stream(0) == stream(0)
    assert stream(0) != stream(1)
    assert sorted(stream(0)) == sorted(stream(1))


def test_order_of_seed_0_is_pinned() -> None:
    # A seed in a published result must mean the same order with every numpy version.
    (segment,) = arrange(Order(), ["fog"], [np.zeros(8, int)], [None], 1, seed=0)
    assert segment.index.tolist() == [7, 4, 1, 3, 2, 5, 0, 6]


def test_limit_is_nested_and_not_just_the_head() -> None:
    small, large = set(first(1000, 50).tolist()), set(first(1000, 200).tolist())
    assert small < large
    assert max(small) > 500
    assert first(10, 50).tolist() == list(range(10))
    for wrong in (0, -1, True):
        with pytest.raises(ConfigError, match="limit="):
            first(10, wrong)


def test_long_tail_by_hand() -> None:
    # n = 8, C = 4, IF = 8: 8·8^0, 8·8^(-1/3), 8·8^(-2/3), 8·8^-1 = 8, 4, 2, 1 up to rounding down
    assert long_tail_counts(8, 4, 1) == [8, 8, 8, 8]
    assert long_tail_counts(100, 3, 4.0) == [100, 50, 25]
    assert long_tail_counts(5, 1, 10) == [5]
    labels = np.array([2, 1, 0, 0, 1, 2, 0, 1, 2, 0, 1, 2])
    # n_max = 4: 4, 2, 1 images of the classes 0, 1, 2: the first ones of each
    assert long_tail(labels, 3, 4.0).tolist() == [0, 1, 2, 3, 4, 6, 9]
    # a class that has fewer than its share keeps all it has
    assert long_tail(np.array([0] * 4 + [1]), 2, 1.0).tolist() == [0, 1, 2, 3, 4]
    for wrong in (0.9, -1, float("nan")):
        with pytest.raises(ConfigError, match="imbalance"):
            long_tail_counts(8, 4, wrong)


def runs(labels: np.ndarray) -> float:
    """Share of neighbors with the same label."""
    return float((labels[1:] == labels[:-1]).mean())


def test_correlated_goes_from_sorted_to_shuffled() -> None:
    labels = np.arange(5000) % 10
    shares = []
    for concentration in (1e-4, 0.1, 1.0, 1e5):
        order = correlated(labels, concentration, random_state(0))
        assert sorted(order.tolist()) == list(range(5000))
        shares.append(runs(labels[order]))
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.35  # at 0 a class lies in one slot, which it may share with others
    assert shares[1] > 0.3
    assert shares[-1] == pytest.approx(0.1, abs=0.02)  # chance


def test_correlated_edge_cases() -> None:
    for labels in (np.zeros(4, int), np.array([3]), np.array([0, 9])):
        for concentration in (1e-9, 1e9):
            order = correlated(labels, concentration, random_state(1))
            assert sorted(order.tolist()) == list(range(len(labels)))
    many = correlated(np.arange(9) % 3, 0.5, random_state(2), slots=50)
    assert sorted(many.tolist()) == list(range(9))
    for wrong in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="concentration"):
            correlated(np.zeros(4, int), wrong, random_state(0))
    with pytest.raises(ConfigError, match="slots=0"):
        correlated(np.zeros(4, int), 1.0, random_state(0), slots=0)


def test_gradual_goes_up_and_down() -> None:
    names = ["fog/5", "fog/1", "fog/3", "snow/1", "snow/2.5"]
    assert visits(names, [5, 1, 3, 1, 2.5]) == [1, 2, 0, 2, 1, 3, 4, 3]
    labels = [np.zeros(6, int)] * 5
    segments = arrange(Order("gradual"), names, labels, [5, 1, 3, 1, 2.5], 1, seed=0)
    assert [int(s.domain[0]) for s in segments] == [1, 2, 0, 2, 1, 3, 4, 3]
    assert segments[0].index.tolist() != segments[4].index.tolist()  # a second visit, a new order
    with pytest.raises(ConfigError, match="'photo' has none"):
        visits(["photo"], [None])
    with pytest.raises(ConfigError, match="several severities of 'fog'"):
        visits(["fog"], [5])


def test_batches_do_not_cross_segments() -> None:
    segments = arrange(Order("independent"), NAMES, LABELS, NONE, 2, seed=0)
    edges, resets = cut(segments, 2)
    assert edges.tolist() == [0, 2, 4, 5, 7, 8, 10, 12]
    assert resets.tolist() == [True, False, False, True, False, True, False]
    for wrong in (0, -3, 1.5, True):
        with pytest.raises(ConfigError, match="batch_size"):
            cut(segments, wrong)  # type: ignore[arg-type]


def test_seed_is_checked() -> None:
    assert random_state(2**40).randint(1000) != random_state(0).randint(1000)
    for wrong in (-1, 1.5, "0", True):
        with pytest.raises(ConfigError, match="seed="):
            random_state(wrong)  # type: ignore[arg-type]
