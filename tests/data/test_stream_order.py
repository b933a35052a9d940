"""Orders, on numbers that can be checked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fretta.data.order import (
    Order,
    Schedule,
    by_class,
    correlated,
    limited,
    long_tail,
    long_tail_counts,
    random_state,
    schedule,
    visits,
    with_dominant,
)
from fretta.errors import ConfigError

LABELS = {name: np.arange(n) % 2 for name, n in (("a", 5), ("b", 3), ("c", 4))}


def arranged(order: str, labels: dict[str, Any] = LABELS, **options: Any) -> Schedule:
    names, numbers = list(labels), list(labels.values())
    severities = options.pop("severities", [None] * len(names))
    options = {"seed": 0, "batch_size": 128, **options}
    return schedule(Order.parse(order), names, numbers, severities, 3, **options)


def pairs(found: Schedule) -> list[tuple[int, int]]:
    return list(zip(found.domain.tolist(), found.index.tolist(), strict=True))


def test_parse() -> None:
    assert str(Order.parse("mixed + correlated+single_sample")) == "mixed+correlated+single-sample"
    assert str(Order.parse("long-tailed")) == "continual+long-tailed"
    assert Order.parse(["independent", "correlated"]) == Order("independent", correlated=True)
    assert str(Order.parse("dominant+sorted+mixed")) == "mixed+sorted+dominant"
    pairs_of_a_kind = ("correlated+sorted", "long-tailed+dominant")
    for wrong in ("random", "continual+mixed", "correlated+correlated", "", *pairs_of_a_kind):
        with pytest.raises(ConfigError, match="order"):
            Order.parse(wrong)


def test_domains_come_in_turn_and_batches_do_not_cross_them() -> None:
    continual = arranged("continual", batch_size=2)
    independent = arranged("independent", batch_size=2)
    assert continual.domain.tolist() == [0] * 5 + [1] * 3 + [2] * 4
    assert sorted(pairs(continual)) == [(d, i) for d, n in enumerate((5, 3, 4)) for i in range(n)]
    assert pairs(independent) == pairs(continual)
    assert independent.edges.tolist() == [0, 2, 4, 5, 7, 8, 10, 12]
    assert np.flatnonzero(independent.resets).tolist() == [0, 3, 5]
    assert not continual.resets.any()
    alone = arranged("continual", {"c": LABELS["c"]})  # the same order beside others and alone
    assert alone.index.tolist() == continual.index[8:].tolist()
    mixed = arranged("mixed", {"a": np.zeros(50, int), "b": np.zeros(50, int)})
    assert set(pairs(mixed)) == {(d, i) for d in range(2) for i in range(50)}
    assert 10 < mixed.domain[:50].sum() < 40  # both domains in the first half


@pytest.mark.parametrize(
    "order",
    ["continual", "mixed", "continual+correlated", "mixed+long-tailed", "sorted", "dominant"],
)
def test_the_seed_changes_the_order_and_nothing_else(order: str) -> None:
    labels = {"a": np.arange(60) % 3, "b": np.arange(30) % 3}
    one, again, other = (pairs(arranged(order, labels, seed=s, limit=20)) for s in (0, 0, 1))
    assert one == again != other
    assert sorted(one) == sorted(other)
    # A seed in a published result must mean the same order with every numpy version.
    found = arranged("continual", {"fog": np.zeros(8, int)})
    assert found.index.tolist() == [7, 4, 1, 3, 2, 5, 0, 6]


def test_limit_and_long_tail_by_hand() -> None:
    small, large = set(limited(1000, 50).tolist()), set(limited(1000, 200).tolist())
    assert small < large
    assert max(small) > 500
    assert limited(10, 50).tolist() == list(range(10))
    assert long_tail_counts(8, 4, 1) == [8, 8, 8, 8]
    assert long_tail_counts(100, 3, 4.0) == [100, 50, 25]
    assert long_tail_counts(5, 1, 10) == [5]
    labels = np.array([2, 1, 0, 0, 1, 2, 0, 1, 2, 0, 1, 2])
    # n_max = 4: 4, 2, 1 images of the classes 0, 1, 2: the first ones of each
    assert long_tail(labels, 3, 4.0).tolist() == [0, 1, 2, 3, 4, 6, 9]
    # a class that has fewer than its share keeps all it has
    assert long_tail(np.array([0] * 4 + [1]), 2, 1.0).tolist() == [0, 1, 2, 3, 4]


def test_correlated_goes_from_sorted_to_shuffled() -> None:
    labels = np.arange(5000) % 10
    shares = []  # of neighbors with the same label
    for concentration in (1e-4, 0.1, 1.0, 1e5):
        order = correlated(labels, concentration, random_state(0))
        assert sorted(order.tolist()) == list(range(5000))
        shares.append(float((labels[order][1:] == labels[order][:-1]).mean()))
    assert shares == sorted(shares, reverse=True)
    assert shares[1] > 0.3
    assert shares[-1] == pytest.approx(0.1, abs=0.02)  # chance
    for few in (np.zeros(4, int), np.array([3]), np.array([0, 9])):
        for concentration in (1e-9, 1e9):
            order = correlated(few, concentration, random_state(1))
            assert sorted(order.tolist()) == list(range(len(few)))
    many = correlated(np.arange(9) % 3, 0.5, random_state(2), slots=50)
    assert sorted(many.tolist()) == list(range(9))


def test_sorted_brings_class_after_class() -> None:
    labels = np.arange(60) % 4
    orders = [by_class(labels, random_state(seed)) for seed in range(8)]
    for order in orders:
        assert sorted(order.tolist()) == list(range(60))
        assert (np.diff(labels[order]) != 0).sum() == 3  # one stretch for each class
        assert order[:15].tolist() != sorted(order[:15])
    assert len({int(labels[order[0]]) for order in orders}) > 1  # classes in random order
    found = arranged("continual+sorted", {"a": labels, "b": labels}, batch_size=15)
    assert all(len(set(labels[found.batch(n)[1]])) == 1 for n in range(len(found)))
    heads = labels[found.index[::15]]
    assert heads[:4].tolist() != heads[4:].tolist()  # each domain has an order of its own


def test_a_dominant_class_has_its_share() -> None:
    labels = np.arange(1000) % 10
    kept = with_dominant(labels, 3, 0.5, 100)
    counts = np.bincount(labels[kept], minlength=10)
    assert counts[3] == 50
    assert set(np.delete(counts, 3)) == {6}  # 50 / 9, rounded
    assert kept.tolist() == sorted(set(kept.tolist()))
    # without a limit as many as the class allows: 100 / 0.8 = 125
    assert np.bincount(labels[with_dominant(labels, 0, 0.8)]).tolist() == [100] + [3] * 9
    few = np.array([0] * 10 + [1] * 10 + [2])  # 10 / 0.5 = 20, of which class 2 has one
    assert np.bincount(few[with_dominant(few, 0, 0.5)]).tolist() == [10, 5, 1]
    found = arranged("dominant", {"a": labels, "b": labels}, dominant=7, share=0.7, limit=100)
    for domain in range(2):
        own = labels[found.index[found.domain == domain]]
        assert (own == 7).sum() == 70
    for wrong in ({"share": 0.0}, {"share": 1}, {"dominant": -1}, {"dominant": 10}, {"limit": 0}):
        (option,) = wrong
        with pytest.raises(ConfigError, match=f"{option}="):
            arranged("dominant", {"a": labels}, **wrong)


def test_gradual_goes_up_and_down() -> None:
    names, severities = ["fog/5", "fog/1", "fog/3", "snow/1", "snow/2.5"], [5, 1, 3, 1, 2.5]
    found = arranged("gradual", dict.fromkeys(names, np.zeros(6, int)), severities=severities)
    assert visits(names, severities) == found.domain[::6].tolist() == [1, 2, 0, 2, 1, 3, 4, 3]
    assert found.index[:6].tolist() != found.index[24:30].tolist()  # a second visit, a new order
    with pytest.raises(ConfigError, match="'photo' has none"):
        visits(["photo"], [None])
    with pytest.raises(ConfigError, match="several severities of 'fog'"):
        visits(["fog"], [5])


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("seed", (-1, 1.5, "0", True)),
        ("limit", (0, -1, True)),
        ("batch_size", (0, -3, 1.5, True)),
        ("imbalance", (0.9, -1, float("inf"), float("nan"))),
        ("concentration", (0, -1, float("inf"), float("nan"))),
        ("slots", (0,)),
    ],
)
def test_options_are_checked(option: str, wrong: tuple[Any, ...]) -> None:
    for value in wrong:
        with pytest.raises(ConfigError, match=f"{option}="):
            arranged("correlated+long-tailed", **{option: value})
    assert random_state(2**40).randint(1000) != random_state(0).randint(1000)
