"""Metrics on a handful of samples one can work out on paper."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from fretta.experiment.metrics import (
    calibration_error,
    collapsed,
    details,
    effective_classes,
    joined,
    macro_accuracy,
    overall,
    per_domain,
)
from fretta.experiment.records import Outcome


def outcome(number: int = 0, **columns: Any) -> Outcome:
    n = len(columns["label"])
    values: dict[str, Any] = {
        "domain": np.zeros(n, dtype=np.int64),
        "predicted": columns["label"],
        "confidence": np.full(n, 0.8, dtype=np.float32),
        "nll": np.full(n, 0.5, dtype=np.float32),
        "entropy": np.full(n, 0.25, dtype=np.float32),
        **columns,
    }
    arrays = {k: np.asarray(v) for k, v in values.items() if k not in ("seconds", "pass_rate")}
    return Outcome(
        number, **arrays, seconds=values.get("seconds", 1.0), pass_rate=values.get("pass_rate")
    )


def test_accuracy_and_calibration() -> None:
    # class 0: 3 of 4 right, class 1: 0 of 1, class 5: 1 of 1; classes 2-4 do not occur
    samples = joined([outcome(label=[0, 0, 0, 0, 1, 5], predicted=[0, 0, 0, 1, 0, 5])])
    assert macro_accuracy(samples) == pytest.approx((0.75 + 0 + 1) / 3)
    assert samples.right.mean() == pytest.approx(4 / 6)
    # two samples at 0.8, one right: gap 0.3 each; two at 1.0, both right: gap 0
    confidence = np.float32([0.8, 0.8, 1, 1])
    samples = joined([outcome(label=[0] * 4, predicted=[0, 1, 0, 0], confidence=confidence)])
    assert calibration_error(samples) == pytest.approx((2 * 0.3 + 0) / 4, abs=1e-6)


def test_effective_classes_and_collapse() -> None:
    assert effective_classes(np.array([0, 0, 0, 3])) == pytest.approx(1)
    assert effective_classes(np.array([1, 1, 1, 1])) == pytest.approx(4)
    assert effective_classes(np.array([0, 0])) == 0
    for classes in (2, 3, 10):
        labels = np.arange(classes).repeat(5)
        all_one = outcome(label=labels, predicted=np.zeros(len(labels), dtype=int))
        assert overall([all_one], [{"accuracy": 0.1}])["collapsed"]
        assert not overall([outcome(label=labels)], [{"accuracy": 1.0}])["collapsed"]
    # a stream of one class is not a collapse
    assert not overall([outcome(label=np.zeros(50, dtype=int))], [{"accuracy": 1.0}])["collapsed"]
    assert (collapsed(1.0, 2.0), collapsed(2.0, 2.0)) == (True, False)


def test_what_is_no_prediction_is_never_right() -> None:
    """-1: the model diverged. Nothing that is stored is NaN."""
    nan = np.full(4, np.nan, dtype=np.float32)
    lost = outcome(label=[0, 0, 0, 1], predicted=[-1] * 4, confidence=nan, nll=nan, entropy=nan)
    rows = per_domain([lost], ["fog"])
    found = overall([lost], rows)
    assert (found["accuracy"], found["predicted_classes"], found["collapsed"]) == (0, 0, True)
    assert (found["ece"], found["entropy"], found["nll"]) == (None, None, None)
    kept = details([lost], ["fog"], ["a", "b"])
    assert kept["domains"][0]["class_predicted"] == [0, 0]
    assert kept["confusion"] == [[0, 0], [0, 0]]
    json.dumps(kept, allow_nan=False)


def test_rows_per_domain_in_order_of_appearance() -> None:
    outcomes = [
        outcome(0, label=[0, 1], domain=[1, 1], seconds=1.0, pass_rate=0.5),
        outcome(1, label=[0, 1], domain=[1, 1], predicted=[1, 1], seconds=3.0, pass_rate=1.0),
        outcome(2, label=[0, 1, 1], domain=[0, 0, 0], seconds=2.0),
    ]
    rows = per_domain(outcomes, ["fog", "snow"])
    assert [r["domain"] for r in rows] == ["snow", "fog"]
    snow = rows[0]
    assert (snow["images"], snow["accuracy"], snow["batches"]) == (4, 0.75, 2)
    assert (snow["seconds_per_batch"], snow["pass_rate"]) == (3.0, 0.75)  # not the first
    assert rows[1]["pass_rate"] is None
    total = overall(outcomes, rows)
    assert total["mean_over_domains"] == pytest.approx((0.75 + 1) / 2)
    assert total["accuracy"] == pytest.approx(6 / 7)
    assert (total["seconds"], total["batches"]) == (6.0, 3)
    row = per_domain([outcome(label=[0, 1], nll=np.float32([math.inf, 1]))], ["fog"])[0]
    assert row["nll"] is None  # overflow


def test_details_hold_what_figures_need() -> None:
    found = details([outcome(label=[0, 1, 1], predicted=[0, 1, 0])], ["fog"], ["cat", "dog", "eel"])
    assert found["classes"] == ["cat", "dog", "eel"]
    assert found["confusion"] == [[1, 0, 0], [1, 1, 0], [0, 0, 0]]
    assert found["domains"][0]["class_seen"] == [1, 2, 0]
    assert found["domains"][0]["class_right"] == [1, 1, 0]
    assert sum(found["domains"][0]["bin_count"]) == 3
    assert found["batches"]["right"] == [2]
    assert details([outcome(label=[0])], ["fog"], ["x"] * 1000)["confusion"] is None
