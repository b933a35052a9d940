"""What each rule looks at."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fretta.data import EXTRA_CORRUPTIONS
from fretta.errors import ConfigError, SuiteError
from fretta.experiment.suite import CaseEntry, MethodEntry, Suite
from fretta.experiment.tune import Rule, label_free
from fretta.experiment.tune.rules import judged


def row(classes: float, entropy: float | None, nrs: float | None = 0.5) -> dict[str, Any]:
    return {"predicted_classes": classes, "entropy": entropy, "nrs_after": nrs}


def one(data: dict[str, Any], **protocol: Any) -> Suite:
    settings = {"order": "continual", "batch_size": 8, "seeds": [0], **protocol}
    case = CaseEntry("case", data, {"source": "digits"}, settings)
    return Suite("mine", "mine", (case,), (MethodEntry("tent"),))


# ---- the label-free score -----------------------------------------------------------------------


def test_label_free_is_its_formula() -> None:
    rows = [row(10.0, 0.2), row(5.0, 1.0)]
    assert label_free(rows) == pytest.approx(2 * math.log(50) - 0.6)


def test_collapse_scores_worst() -> None:
    """One class, all sure of it: as good as entropy and redundancy can be, and still last."""
    collapsed = label_free([row(1.0, 0.0, 0.0)])
    others = {
        "good": row(9.9, 0.1),
        "untouched": row(8.0, 0.9),
        "very unsure": row(6.0, 2.2, 0.9),
        "half collapsed": row(3.0, 0.0, 1.0),
    }
    scores = {name: label_free([r]) for name, r in others.items()}
    assert collapsed is not None
    assert all(s is not None and s > collapsed for s in scores.values())
    assert max(scores, key=lambda name: scores[name] or 0) == "good"


def test_collapse_in_half_of_the_stream_loses_against_none() -> None:
    steady = label_free([row(8.0, 0.9), row(8.0, 0.9)])
    late = label_free([row(9.9, 0.1), row(1.0, 0.0, 0.0)])
    assert steady is not None
    assert late is not None
    assert steady > late


def test_divergence_has_no_score() -> None:
    assert label_free([row(9.0, 0.1), row(1.0, None)]) is None


def test_label_free_reads_nothing_that_needs_labels() -> None:
    class Blind(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            assert key in ("entropy", "predicted_classes", "nrs_after", "pass_rate")
            return super().__getitem__(key)

        get = __getitem__  # type: ignore[assignment]

    assert label_free([Blind(row(9.0, 0.1), accuracy=0.0, collapsed=True)]) is not None


def test_unknown_rule() -> None:
    with pytest.raises(ConfigError, match="oracle, first-domain, extra-corruptions, label-free"):
        Rule.parse("best")


# ---- first domain -------------------------------------------------------------------------------


def test_first_domain_cuts_the_stream() -> None:
    view, words = judged(one({"name": "digits"}), Rule.FIRST_DOMAIN, None)
    assert view.cases[0].protocol["domains"] == ["gaussian_noise"]
    assert words == ("case: gaussian_noise",)
    view, _ = judged(one({"name": "digits"}, domains=["fog", "snow"]), Rule.FIRST_DOMAIN, None)
    assert view.cases[0].protocol["domains"] == ["fog"]


def test_first_domain_of_a_gradual_stream_is_a_corruption() -> None:
    data = {"name": "digits", "corruption": ["fog", "snow"], "severity": [1, 2, 3]}
    view, _ = judged(one(data, order="gradual"), Rule.FIRST_DOMAIN, None)
    assert view.cases[0].protocol["domains"] == ["fog/1", "fog/2", "fog/3"]


def test_first_domain_of_leave_one_out_is_the_first_case() -> None:
    def case(domain: str) -> CaseEntry:
        data = {"name": "digits", "corruption": domain}
        return CaseEntry(domain, data, {}, {"order": "continual"})

    suite = Suite("dg", "dg", (case("fog"), case("snow")), (MethodEntry("tent"),))
    view, words = judged(suite, Rule.FIRST_DOMAIN, None)
    assert view.cases == suite.cases[:1]
    assert words == ("fog: fog",)


def test_first_domain_is_refused_where_it_is_the_only_one() -> None:
    with pytest.raises(SuiteError, match="one domain only, fog"):
        judged(one({"name": "digits"}, domains=["fog"]), Rule.FIRST_DOMAIN, None)


# ---- extra corruptions --------------------------------------------------------------------------


def test_extra_corruptions_on_the_fly() -> None:
    suite = one({"name": "digits", "split": "test"}, domains=["fog"], limit=8)
    view, _ = judged(suite, Rule.EXTRA_CORRUPTIONS, None)
    assert view.cases[0].data == {"name": "digits", "split": "test", "corruption": "extra"}
    assert "domains" not in view.cases[0].protocol
    assert view.cases[0].protocol["limit"] == 8


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"name": "digits", "corruption": ["fog", "spatter"]}, "not held out"),
        ({"name": "digits", "split": "train"}, "not corrupted"),
        ({"name": "digits", "split": "tset"}, "case 'case'.*tset"),
    ],
)
def test_extra_corruptions_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        judged(one(data), Rule.EXTRA_CORRUPTIONS, None)


def test_extra_corruptions_of_cifar_c(tmp_path: Path) -> None:
    """From its files where they are, else from the clean set beside them, else an error."""
    folder, clean = tmp_path / "CIFAR-10-C", tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    images = np.full((50, 32, 32, 3), 100, dtype=np.uint8)
    np.save(folder / "labels.npy", np.tile(np.arange(10), 5))
    np.save(folder / "fog.npy", images)
    suite = one({"name": "cifar10c", "domains": ["fog"], "severity": 3, "verify": "off"})
    with pytest.raises(SuiteError, match=r"speckle_noise\.npy is missing.*CIFAR-10"):
        judged(suite, Rule.EXTRA_CORRUPTIONS, tmp_path)

    clean.mkdir()
    batch = {b"data": images[:10].reshape(10, -1), b"labels": list(range(10))}
    names = [
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ]
    (clean / "test_batch").write_bytes(pickle.dumps(batch))
    (clean / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}))
    view, _ = judged(suite, Rule.EXTRA_CORRUPTIONS, tmp_path)
    assert view.cases[0].data == {
        "name": "cifar10",
        "corruption": "extra",
        "severity": 3,
        "verify": "off",
    }

    for name in EXTRA_CORRUPTIONS:
        np.save(folder / f"{name}.npy", images)
    view, _ = judged(suite, Rule.EXTRA_CORRUPTIONS, tmp_path)
    assert view.cases[0].data["name"] == "cifar10c"
    assert view.cases[0].data["domains"] == list(EXTRA_CORRUPTIONS)
